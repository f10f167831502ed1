"""Settings of the core, and the named priorities of workloads."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Strategy(StrEnum):
    """The rule by which nodes are ordered."""

    BIN_PACK = "bin-pack"
    SPREAD = "spread"


@dataclass(frozen=True, slots=True)
class Settings:
    """Rules of the whole cluster.

    Attributes:
        gpu_strategy, cpu_strategy: nodes for work with and without GPUs.
        usage_factor_millionths: k of time-based fair share; 0: past use does not count.
        saturation_milli: a request beyond the fair share needs victims whose queue is so much more
            saturated.
        stale_grace_s: how long a gang may run with fewer tasks than its minimum; negative: for
            ever.
        reservation_delay_s: a workload that is next in its queue and could have started, had
            capacity been kept for it, gets places reserved after so long; negative: never.
        most_reserved: capacity is reserved only while no more workloads than this have a
            reservation.
        consolidate: running preemptible work may be moved when all that is moved has a place.
        min_runtime_s: of queues that say nothing.
        claims_per_cycle: so many kinds of waiting work are looked at closely in a cycle by each
            action that stops others, in turns when there are more.
        reclaim_delay_s: preemptible work that waits lets what others use over quota run for so
            long, since it came or was last evicted, before it reclaims; moving others
            does not wait.
        search_steps: how many sets of victims are tried for one request.
    """

    gpu_strategy: Strategy = Strategy.BIN_PACK
    cpu_strategy: Strategy = Strategy.BIN_PACK
    usage_factor_millionths: int = 0
    saturation_milli: int = 1000
    stale_grace_s: float = 60.0
    reservation_delay_s: float = 600.0
    most_reserved: int = 4
    consolidate: bool = True
    min_runtime_s: float = 0.0
    claims_per_cycle: int = 32
    reclaim_delay_s: float = 0.0
    search_steps: int = 1000


DEFAULTS: Final = Settings()

NAMED: Final[dict[str, int]] = {
    "very-low": 10,
    "low": 30,
    "train": 50,
    "medium-low": 50,
    "medium": 60,
    "build-preemptible": 75,
    "medium-high": 80,
    "build": 100,
    "high": 100,
    "inference": 125,
    "very-high": 125,
}
"""Named priorities inside a project; larger goes first.

The four kinds follow the field's usual numbers (train 50, preemptible build 75, build 100,
inference 125); the seven levels lie between and around them.
"""
