"""Between a trial's process and the scheduler: values go out in their order, the answer comes back.

Values that cannot be sent are kept and sent again. The process waits for them when it ends: the
last one is what the whole trial was for. Reports have a thread, so that they hold up nobody; a
trial that only has a result does without.
"""

import atexit
import json
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from carrel.job import exchange

if TYPE_CHECKING:
    from carrel.job.sender import Sender

ANSWER_SECONDS: Final = 2.0
LAST_SECONDS: Final = 60.0
PAUSE_SECONDS: Final = 0.2
MOST_VALUES: Final = 1000
# What it makes no sense to send again.
LASTING: Final = frozenset({400, 401, 403, 404, 410, 413, 422})


def merge(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Two reports as one: all values in their order; of very many the last."""
    values = [*old.get("values", ()), *new.get("values", ())][-MOST_VALUES:]
    return {**old, **new, **({"values": values} if values else {})}


class Link:
    """A trial's way to its experiment.

    Args:
        url: of the trial's workload.
        token: the task's own token.
    """

    def __init__(self, url: str, token: str) -> None:
        self._url, self._token = url, token
        self._pruned = self._silent = self._answered = False
        self._sender: Sender | None = None

    def put(self, body: Mapping[str, Any]) -> None:
        """Send soon; returns at once."""
        self._thread().put(body)

    def deliver(self, body: Mapping[str, Any]) -> None:
        """Send now and wait until it was taken."""
        if self._sender is not None:
            self._sender.put(body)
            self._sender.flush(LAST_SECONDS)
            return
        content, until = json.dumps(body).encode(), time.monotonic() + LAST_SECONDS
        while not self._tried(content) and time.monotonic() < until:
            time.sleep(PAUSE_SECONDS)

    def ask(self) -> bool:
        """Whether the trial is pruned; waits for the answer, but only once if none comes."""
        if not self._pruned:
            self._answered = False
            sender = self._thread()
            sender.put({"asks": True})
            sender.flush(0.0 if self._silent else ANSWER_SECONDS)
            self._silent = not self._answered
        return self._pruned

    def suggest(self, parameter: Mapping[str, Any]) -> Any:
        """The value of a parameter; raises ``RuntimeError``."""
        try:
            status, answer = self._request("suggestions", json.dumps(parameter).encode())
        except OSError as error:
            raise RuntimeError(f"the scheduler cannot be asked now: {error}") from error
        if status != 200:
            raise RuntimeError(str((answer or {}).get("detail") or f"refused, status {status}"))
        return answer["value"]

    def flush(self, seconds: float) -> None:
        """Wait, at most so long, until everything was sent."""
        if self._sender is not None:
            self._sender.flush(seconds)

    def _thread(self) -> "Sender":
        if self._sender is None:
            from carrel.job.sender import Sender  # heavy; needed for reports only

            self._sender = Sender(
                f"{self._url}/trial", self._token, merge, post=self._post, interval=0.1
            )
            atexit.register(self._sender.flush, LAST_SECONDS)
        return self._sender

    def _tried(self, content: bytes) -> bool:
        """Whether it is done with, so that it need not be sent again."""
        try:
            status = self._post(content)
        except OSError:
            return False
        if status in LASTING:
            from carrel.job.task import warn

            warn(f"the result is not taken (status {status}).")
        return status < 300 or status in LASTING

    def _post(self, content: bytes) -> int:
        status, answer = self._request("trial", content)
        if status == 200:
            self._answered = True
            self._silent = False
            self._pruned = self._pruned or bool(answer["should_prune"])
        return status

    def _request(self, part: str, content: bytes) -> tuple[int, Any]:
        return exchange.post(f"{self._url}/{part}", self._token, content)
