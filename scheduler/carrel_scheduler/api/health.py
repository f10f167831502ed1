"""Whether this process answers, and whether it can work: for those who restart it or send to it.

``/health`` says that the event loop turns; ``/ready`` that nothing is known to be in the way of
work, else what. Neither needs a token, so ``/ready`` counts inputs that were set aside and does not
name them (``GET /faults``), and names invariants that are violated; work goes on beside these, so
it stays ready.
"""

from collections.abc import Callable
from typing import Any

from tornado import web
from typing_extensions import override

from carrel_scheduler.workloads.contract import Faults

PATH = "/health"
READY_PATH = "/ready"
_UNAVAILABLE = 503


class HealthHandler(web.RequestHandler):
    """Answers as long as the event loop runs."""

    @override
    def get(self) -> None:
        """An empty object."""
        self.write({})


class ReadyHandler(web.RequestHandler):
    """Answers whether the service can do its work."""

    @override
    def initialize(self, trouble: Callable[[], str], faults: Callable[[], Faults]) -> None:
        """``trouble``: what is in the way, in words; empty for nothing. ``faults``: what is odd."""
        self._trouble, self._faults = trouble, faults

    @override
    def get(self) -> None:
        """``ready``; 503 with the ``reason`` where it is not."""
        if trouble := self._trouble():
            not_ready(self, trouble)
        else:
            self.write({"ready": True, **_told(self._faults())})


def _told(faults: Faults) -> dict[str, Any]:
    told: dict[str, Any] = {}
    if faults.set_aside:
        told["set_aside_count"] = len(faults.set_aside)
    if faults.violated:
        told["violated_invariants"] = list(faults.violated)
    return told


def not_ready(handler: web.RequestHandler, reason: str) -> None:
    """Answer 503 with the cause."""
    handler.set_status(_UNAVAILABLE)
    handler.finish({"ready": False, "reason": reason})
