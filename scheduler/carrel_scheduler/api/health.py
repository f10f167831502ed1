"""Whether this process answers, and whether it can work: for those who restart it or send to it.

``/health`` says that the event loop turns; ``/ready`` that nothing is known to be in the way of
work, else what. Neither needs a token, and neither says more.
"""

from collections.abc import Callable

from tornado import web
from typing_extensions import override

PATH = "/health"
READY_PATH = "/ready"
_UNAVAILABLE = 503


class HealthHandler(web.RequestHandler):
    """Says that the event loop turns, and nothing else."""

    @override
    def get(self) -> None:
        """An empty object."""
        self.write({})


class ReadyHandler(web.RequestHandler):
    """Says whether work can be done."""

    @override
    def initialize(self, trouble: Callable[[], str]) -> None:
        """``trouble``: what is in the way, in words; empty for nothing."""
        self._trouble = trouble

    @override
    def get(self) -> None:
        """``ready``; 503 with the ``reason`` where it is not."""
        if trouble := self._trouble():
            not_ready(self, trouble)
        else:
            self.write({"ready": True})


def not_ready(handler: web.RequestHandler, reason: str) -> None:
    """Answer that there is no service, and why."""
    handler.set_status(_UNAVAILABLE)
    handler.finish({"ready": False, "reason": reason})
