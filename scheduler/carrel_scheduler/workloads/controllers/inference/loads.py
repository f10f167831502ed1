"""Gateways' reports of the requests to each workload, in memory only.

A gateway that has not reported for a while counts no more, and one that has not reported
everything yet does not count either: what it leaves out may be the case. Whoever wants to know
of changes is called with the uid.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

FORGET_SECONDS: Final = 30.0


class LoadReport(msgspec.Struct, frozen=True, kw_only=True):
    """The load of a workload's requests at one gateway.

    Attributes:
        in_flight: requests that are being answered, or held until somebody can.
        rate: requests in a second, lately.
        requests: all since the gateway began; ``errors`` of these were answered with 5xx.
        latency: of the last minute, seconds until answers began and how many took about as long.
        last_request_at: epoch seconds.
        targets: by uid of the replica, those that it may send requests to or has some at.
    """

    uid: str
    in_flight: int = 0
    rate: float = 0.0
    requests: int = 0
    errors: int = 0
    latency: Sequence[tuple[float, int]] = ()
    last_request_at: float | None = None
    targets: Mapping[str, int] = {}


@dataclass(frozen=True, slots=True)
class Load:
    """Requests of one workload at all gateways; ``heard`` while any gateway reports."""

    heard: bool = False
    in_flight: int = 0
    rate: float = 0.0
    last_request_at: float | None = None
    targets: Mapping[str, int] = field(default_factory=dict)
    latency: tuple[tuple[float, int], ...] = ()

    def took(self, share: float) -> float | None:
        """Seconds within which this share of responses began; ``None`` without responses."""
        left = share * sum(count for _, count in self.latency)
        for seconds, count in sorted(self.latency):
            left -= count
            if left <= 0:
                return seconds
        return None


@dataclass(slots=True)
class _GatewayReports:
    heard_at: float
    complete: bool = False
    reports: dict[str, LoadReport] = field(default_factory=dict)


class Loads:
    """See the module. ``clock`` gives seconds."""

    def __init__(
        self, clock: Callable[[], float], changed: Callable[[str], None] = lambda _: None
    ) -> None:
        self._clock = clock
        self._changed = changed
        self._gateways: dict[str, _GatewayReports] = {}

    def take(self, gateway: str, reports: Sequence[LoadReport], *, everything: bool) -> None:
        """Handle a gateway's report: of some workloads, or of ``everything`` that it knows."""
        known = self._gateways.setdefault(gateway, _GatewayReports(0.0))
        known.heard_at = self._clock()
        known.complete = known.complete or everything
        gone = {one: LoadReport(uid=one) for one in known.reports} if everything else {}
        for report in (gone | {one.uid: one for one in reports}).values():
            if known.reports.get(report.uid) != report:
                known.reports[report.uid] = report
                self._changed(report.uid)
        if everything:
            told = {one.uid for one in reports}
            known.reports = {uid: one for uid, one in known.reports.items() if uid in told}

    def of(self, uid: str) -> Load:
        """The sum of all gateways' reports of a workload."""
        oldest = self._clock() - FORGET_SECONDS
        living = [one for one in self._gateways.values() if one.heard_at >= oldest]
        reports = [one.reports[uid] for one in living if uid in one.reports]
        targets: dict[str, int] = {}
        for report in reports:
            for target, in_flight in report.targets.items():
                targets[target] = targets.get(target, 0) + in_flight
        times = [one.last_request_at for one in reports if one.last_request_at is not None]
        return Load(
            heard=bool(living) and all(one.complete for one in living),
            in_flight=sum(one.in_flight for one in reports),
            rate=sum(one.rate for one in reports),
            last_request_at=max(times, default=None),
            targets=targets,
            latency=tuple(pair for one in reports for pair in one.latency),
        )
