"""Health conditions of a device: pure, from the facts that NVML reports.

A condition lasts as long as its facts do. An Xid is an event: it stays until an admin returns the
device to service. A device that falls short for a moment only (``LINK_SECONDS``,
``THROTTLE_SECONDS``) has no condition yet.

Fatal Xids are those whose immediate action in NVIDIA's catalog (docs.nvidia.com/deploy/xid-errors,
"Analyzing Xid Errors with the Xid Catalog") is to reset the GPU, to restart the machine or to
check the hardware. The others are errors of a program (13, 31, 43, 45, 94, ...) or tell of repairs
(63).
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from carrel_scheduler.node.contract import HealthCondition

FATAL_XIDS: Final[Mapping[int, str]] = {
    46: "the GPU stopped processing",
    48: "uncorrectable double-bit memory error",
    62: "the GPU's microcontroller halted",
    64: "a row of memory could not be remapped",
    74: "NVLink error",
    79: "the GPU has fallen off the bus",
    95: "uncontained memory error",
    110: "security fault",
    119: "the GPU's system processor does not answer",
    120: "the GPU's system processor failed",
    136: "the GPU could not be prepared for work",
    140: "uncorrected memory error",
    143: "the GPU could not be initialised",
    158: "fatal timeout of the GPU",
}
UNKNOWN_TIME: Final = 0.0
"""The time of an Xid from before the first look."""
HARDWARE_SLOWDOWN: Final = 0x8 | 0x40 | 0x80
"""NVML's bits for clocks lowered by the hardware: slowdown, thermal slowdown, power brake."""
LINK_SECONDS: Final = 30.0
THROTTLE_SECONDS: Final = 120.0


@dataclass(slots=True)
class HealthFacts:
    """The present facts from NVML; ``None`` for a value that the device does not have."""

    uncorrectable: int | None = None
    remap_failed: bool = False
    throttle_reasons: int = 0
    active_links: frozenset[int] = frozenset()


@dataclass(slots=True)
class HealthChecks:
    """The health checks of a device over time.

    Attributes:
        xids: fatal ones by code, with the time of the last.
        links: that were seen active; down_since: those that are down.
    """

    xids: dict[int, float] = field(default_factory=dict)
    links: set[int] = field(default_factory=set)
    down_since: dict[int, float] = field(default_factory=dict)
    slow_since: float | None = None

    def report_xid(self, code: int, now: float) -> None:
        """Record an Xid that the driver reported."""
        if code in FATAL_XIDS:
            self.xids[code] = now

    def check(self, facts: HealthFacts, now: float) -> tuple[HealthCondition, ...]:
        """The present conditions."""
        self._follow_links(facts.active_links, now)
        self._follow_clocks(facts.throttle_reasons, now)
        return (*self._failures(facts), *self._shortcomings(now))

    def _failures(self, facts: HealthFacts) -> list[HealthCondition]:
        found = [
            _failed(f"xid:{code}:{at:.0f}", f"Xid {code}: {FATAL_XIDS[code]}")
            for code, at in sorted(self.xids.items())
        ]
        if facts.uncorrectable:
            words = f"{facts.uncorrectable} uncorrectable memory errors since the last reset"
            found.append(_failed(f"ecc:{facts.uncorrectable}", words))
        if facts.remap_failed:
            found.append(_failed("remap", "a row of memory could not be remapped"))
        return found

    def _shortcomings(self, now: float) -> list[HealthCondition]:
        found = [
            _degraded(f"link:{link}", f"NVLink {link} is down")
            for link, since in sorted(self.down_since.items())
            if now - since >= LINK_SECONDS
        ]
        if self.slow_since is not None and now - self.slow_since >= THROTTLE_SECONDS:
            found.append(_degraded("throttle", "the hardware holds its clocks down"))
        return found

    def _follow_links(self, active: Collection[int], now: float) -> None:
        for link in self.links.difference(active):
            self.down_since.setdefault(link, now)
        for link in active:
            self.down_since.pop(link, None)
        self.links.update(active)

    def _follow_clocks(self, reasons: int, now: float) -> None:
        if not reasons & HARDWARE_SLOWDOWN:
            self.slow_since = None
        elif self.slow_since is None:
            self.slow_since = now


def _failed(key: str, message: str) -> HealthCondition:
    return HealthCondition(key=key, severity="failed", message=message)


def _degraded(key: str, message: str) -> HealthCondition:
    return HealthCondition(key=key, severity="degraded", message=message)
