"""Reports to the scheduler how many requests each endpoint has: soon after a change, else rarely.

By these numbers it scales, and learns that a draining server has no requests left.
"""

import asyncio
import logging
import math
import secrets
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from carrel.client.transport import Transport
from carrel.errors import CarrelError
from carrel_hub.gateway.balancing import LoadBalancer
from carrel_hub.gateway.routing import RoutedWorkload, RoutingTable

log = logging.getLogger(__name__)

PAUSE_SECONDS: Final = 0.25
COMPLETE_REPORT_SECONDS: Final = 10.0
RATE_SECONDS: Final = 10
LATENCY_SECONDS: Final = 60.0
_LEAST: Final = 0.0002
_STEP: Final = 1.2
_LOG: Final = math.log(_STEP)
# Up to a quarter of an hour; what takes longer counts as that.
_STEPS: Final = 84


class LatencyHistogram:
    """Time to the first byte of servers' answers in the last minute, in buckets of a fifth.

    Counts of several gateways can be added up, which medians cannot; whoever reads them finds any
    quantile, a tenth too high or too low at most. What is older than half a window is dropped when
    the next half begins.
    """

    __slots__ = ("_before", "_counts", "_since")

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self._before: Counter[int] = Counter()
        self._since = -math.inf

    def observe(self, now: float, seconds: float) -> None:
        """An answer began."""
        self._rotate(now)
        step = 0 if seconds <= _LEAST else min(int(math.log(seconds / _LEAST) / _LOG) + 1, _STEPS)
        self._counts[step] += 1

    def recent(self, now: float) -> list[tuple[float, int]]:
        """Seconds in the middle of each step, and how many answers took about as long."""
        self._rotate(now)
        counts = sorted((self._counts + self._before).items())
        return [(float(f"{_LEAST * _STEP ** (step - 0.5):.3g}"), count) for step, count in counts]

    def _rotate(self, now: float) -> None:
        if now < self._since + LATENCY_SECONDS / 2:
            return
        stale = now >= self._since + LATENCY_SECONDS
        self._before = Counter() if stale else self._counts
        self._counts, self._since = Counter(), now


@dataclass(slots=True)
class EndpointLoad:
    """Requests of one workload since the gateway began; the last seconds one by one."""

    requests: int = 0
    errors: int = 0
    last_at: float | None = None
    by_second: deque[list[float]] = field(default_factory=lambda: deque(maxlen=RATE_SECONDS))
    latencies: LatencyHistogram = field(default_factory=LatencyHistogram)

    def count(self, now: float) -> None:
        """A request came."""
        self.requests += 1
        self.last_at = now
        second = float(int(now))
        if not self.by_second or self.by_second[-1][0] != second:
            self.by_second.append([second, 0.0])
        self.by_second[-1][1] += 1.0

    def rate(self, now: float) -> float:
        """Requests in a second over the last ten."""
        recent = sum(count for second, count in self.by_second if second > now - RATE_SECONDS)
        return recent / RATE_SECONDS


class LoadReporter:
    """Counts requests and reports them. ``clock`` gives epoch seconds."""

    def __init__(
        self,
        transport: Transport,
        table: RoutingTable,
        balancer: LoadBalancer,
        clock: Callable[[], float],
    ) -> None:
        self._transport, self._table, self._balancer = transport, table, balancer
        self._clock = clock
        self._name = secrets.token_hex(8)
        self._loads: dict[str, EndpointLoad] = {}
        self._dirty: set[str] = set()
        self._complete = False
        self._woken = asyncio.Event()

    def changed(self, uid: str) -> None:
        """Mark a workload whose load is to be reported."""
        self._dirty.add(uid)
        self._woken.set()

    def report_everything(self) -> None:
        """The table is complete, or the scheduler is another one."""
        self._complete = True
        self._woken.set()

    def request_began(self, uid: str) -> None:
        """A request came to a workload."""
        self._load(uid).count(self._clock())

    def request_ended(self, uid: str, *, failed: bool, seconds: float | None) -> None:
        """Record an answered request, of any duration.

        Args:
            uid: of the workload.
            failed: with an error of the server's side.
            seconds: until a server began to answer, if one did.
        """
        load, now = self._load(uid), self._clock()
        load.last_at = now
        load.errors += failed
        if seconds is not None:
            load.latencies.observe(now, seconds)

    def _load(self, uid: str) -> EndpointLoad:
        found = self._loads.get(uid)
        if found is None:
            found = self._loads[uid] = EndpointLoad()
        return found

    async def run(self) -> None:
        """Report for ever, from when the table is complete."""
        while not self._complete:
            await self._woken.wait()
            self._woken.clear()
        while True:
            complete, self._complete = self._complete, False
            try:
                await self._report(complete=complete)
            except CarrelError as error:
                log.warning("counts of requests could not be sent to the scheduler: %s", error)
                self._complete = True
            await asyncio.sleep(PAUSE_SECONDS)
            try:
                async with asyncio.timeout(COMPLETE_REPORT_SECONDS):
                    await self._woken.wait()
            except TimeoutError:
                self._complete = True

    async def _report(self, *, complete: bool) -> None:
        dirty, self._dirty = self._dirty, set()
        self._woken.clear()
        workloads = [one for one in self._table if complete or one.uid in dirty]
        if complete:
            known = {workload.uid for workload in workloads}
            self._loads = {uid: one for uid, one in self._loads.items() if uid in known}
        items = [self._item(workload) for workload in workloads]
        body = {"gateway": self._name, "everything": complete, "items": items}
        await self._transport.send("POST", "/gateway/loads", body=body, repeatable=True)

    def _item(self, workload: RoutedWorkload) -> dict[str, Any]:
        load, now = self._loads.get(workload.uid, EndpointLoad()), self._clock()
        in_flight = self._balancer.in_flight[workload.uid]
        busy = self._balancer.at_targets(workload.uid)
        return {
            "uid": workload.uid,
            "in_flight": in_flight,
            "rate": load.rate(now),
            "requests": load.requests,
            "errors": load.errors,
            "latency": load.latencies.recent(now),
            # An open connection counts as a visitor.
            "last_request_at": now if in_flight else load.last_at,
            "targets": {uid: busy.get(uid, 0) for uid in sorted(workload.target_uids | set(busy))},
        }
