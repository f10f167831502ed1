"""What is done while the API server does not know us, or we not it: asked seldom, said once.

A plugin that is missing, a token that was withdrawn or a certificate that ran out are mended by a
person, minutes or days later. A few failures in a row are taken for chance (a token that is just
being replaced). Then one try is let through at a time, ever more seldom; all others fail at once
with the reason, so neither the server nor the plugin is asked by everybody.
"""

import logging
import time
from collections.abc import Callable
from typing import Final

from carrel_scheduler.kube.credentials import CredentialsUnusable

log = logging.getLogger(__name__)

CHANCE_FAILURES: Final = 3
FIRST_SECONDS: Final = 1.0
LONGEST_SECONDS: Final = 30.0
NOT_KNOWN: Final = (
    "the API server does not accept our credentials (401): their token or certificate has expired "
    "or was withdrawn, or is another cluster's"
)


class Patience:
    """See the module.

    Attributes:
        trouble: why nothing can be asked, in words; empty when all is well.

    Args:
        now: monotonic seconds.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.trouble = ""
        self._now = now
        self._failures = 0
        self._next = 0.0
        self._why: CredentialsUnusable | None = None

    def check(self) -> None:
        """Raises ``CredentialsUnusable`` where it is too early for another try."""
        if self._why is None or not self.trouble:
            return
        if self._now() < self._next:
            raise CredentialsUnusable(str(self._why), refused=self._why.refused)
        self._rest()  # others wait for what becomes of this try

    def failed(self, why: CredentialsUnusable) -> None:
        """A try met this."""
        self._failures += 1
        self._why = why
        if self._failures < CHANCE_FAILURES:
            return
        self._rest()
        if self.trouble != str(why):
            self.trouble = str(why)
            log.error(
                "nothing can be asked of Kubernetes: %s; tried again every %g s",
                why,
                LONGEST_SECONDS,
            )

    def works(self) -> None:
        """The server knows us."""
        if self.trouble:
            log.info("Kubernetes answers again")
        self.trouble, self._failures, self._why = "", 0, None

    def _rest(self) -> None:
        step = FIRST_SECONDS * 2.0 ** min(max(0, self._failures - CHANCE_FAILURES), 10)
        self._next = self._now() + min(LONGEST_SECONDS, step)
