"""Activity of a workspace, as facts in order of arrival. Pure: times are given.

The rule: a kernel is busy while it executes somebody's request, and only then; input is a cell
sent, a computation finished, a key pressed in a terminal or a file saved. An open tab, a ping, a
poll and the traffic of live widgets are nothing of this, so a forgotten tab is idle and a silent
computation is not.
"""

from dataclasses import dataclass, field
from typing import Final

UNSEEN: Final = ""
"""Stands for a request whose start was not seen, as it was before the subscription."""


@dataclass(frozen=True, slots=True)
class ActivityReading:
    """A reading of a workspace's activity. Times are epoch seconds.

    Attributes:
        busy_since: since when a kernel has been executing requests without a break; ``None`` when
            none does.
        last_input_at: the latest input, 0 when there was none yet.
    """

    at: float
    busy_since: float | None
    last_input_at: float
    kernels: int
    terminals: int


@dataclass(slots=True)
class ActivityTracker:
    """Collects facts; ``reading`` sums them up."""

    last_input_at: float = 0.0
    busy_since: float | None = None
    _executing: dict[str, set[str]] = field(default_factory=dict)
    _typed: set[str] = field(default_factory=set)

    def kernel_appeared(self, kernel: str) -> None:
        """Record a kernel; no effect for a known one."""
        self._executing.setdefault(kernel, set())

    def kernel_gone(self, kernel: str) -> None:
        """A kernel ended; what it executed has ended with it."""
        for request in self._executing.pop(kernel, set()):
            self._typed.discard(request)
        self._settle()

    def kernel_started_over(self, kernel: str, at: float) -> None:
        """A kernel was restarted: its requests are lost, and the restart counts as input."""
        for request in self._executing.get(kernel, set()):
            self._typed.discard(request)
        self._executing[kernel] = set()
        self.input_seen(at)
        self._settle()

    def execution_started(self, kernel: str, request: str, at: float) -> None:
        """A kernel begins to execute a request."""
        self._executing.setdefault(kernel, set()).add(request)
        if self.busy_since is None:
            self.busy_since = at

    def code_announced(self, kernel: str, request: str, at: float) -> None:
        """The kernel published the code it executes: a person sent it, not a silent helper."""
        if request in self._executing.get(kernel, set()):
            self._typed.add(request)
        self.input_seen(at)

    def found_busy(self, kernel: str, at: float) -> None:
        """A kernel computes though the start of no request was seen."""
        if not self._executing.get(kernel):
            self.execution_started(kernel, UNSEEN, at)

    def found_idle(self, kernel: str, at: float) -> None:
        """A kernel computes nothing: this ends what was found busy, not a seen request."""
        executing = self._executing.get(kernel, set())
        if UNSEEN in executing:
            executing.discard(UNSEEN)
            self.input_seen(at)
            self._settle()

    def execution_ended(self, kernel: str, request: str, at: float) -> None:
        """A request is done. The end of a person's computation starts the idle time anew."""
        self.found_idle(kernel, at)
        self._executing.get(kernel, set()).discard(request)
        if request in self._typed:
            self._typed.discard(request)
            self.input_seen(at)
        self._settle()

    def input_seen(self, at: float) -> None:
        """A key in a terminal, a save."""
        self.last_input_at = max(self.last_input_at, at)

    def reading(self, now: float, terminals: int) -> ActivityReading:
        """The activity until ``now``."""
        return ActivityReading(
            now, self.busy_since, self.last_input_at, len(self._executing), terminals
        )

    @property
    def kernels(self) -> frozenset[str]:
        """The known kernels."""
        return frozenset(self._executing)

    def _settle(self) -> None:
        if not any(self._executing.values()):
            self.busy_since = None
