"""Past use of each project, for time-based fair shares.

Past use is an average over time in which use counts half as much after every half-life, as a part
of what the cluster has now. It comes from the ledger's rows alone, so a restart forgets nothing: at
first the last half-lives are read in pieces, afterwards every few minutes what was added. Whoever
used more than their weight gets less of the surplus for a while, and the other way round; what is
guaranteed does not change.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from carrel_scheduler.core.events import UsageSeen
from carrel_scheduler.core.resources import MILLI
from carrel_scheduler.core.state import State
from carrel_scheduler.ledger.records import Ledger
from carrel_scheduler.workloads.state.events import UsedLately

HALF_LIVES: Final = 8
"""How far the ledger is read back: what is older counts less than 1 in 256."""
PIECES: Final = 4
"""Pieces of a half-life: inside a piece all use counts the same."""
MIB: Final = 1 << 20
MILLION: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class PastUseRules:
    """Settings of past use.

    Attributes:
        factor: k of the shares (see ``core.queues.siblings``); 0: not at all.
        half_life_s: after so many seconds use counts half as much.
    """

    factor: float = 0.0
    half_life_s: float = 7 * 86_400.0


class PastUse:
    """Running averages by project, read from the ledger."""

    def __init__(self, ledger: Ledger, half_life_s: float) -> None:
        self._ledger, self._half_life_s = ledger, half_life_s
        self._weight = 0.0
        self._sums: dict[str, tuple[float, float, float]] = {}
        self._until: float | None = None

    async def follow(self, now: float) -> UsedLately:
        """Averages up to ``now``: GPU thousandths, millicores and MiB by project."""
        if self._until is None:
            piece = self._half_life_s / PIECES
            for left in reversed(range(HALF_LIVES * PIECES)):
                await self._pass(now - (left + 1) * piece, now - left * piece)
        elif now > self._until:
            await self._pass(self._until, now)
        return UsedLately(
            {
                name: (gpu / self._weight, cpu / self._weight, memory / self._weight)
                for name, (gpu, cpu, memory) in self._sums.items()
            }
        )

    async def _pass(self, since: float, until: float) -> None:
        kept = 0.5 ** ((until - since) / self._half_life_s)
        counts = (1 - kept) / (until - since)
        sums = {
            name: (gpu * kept, cpu * kept, memory * kept)
            for name, (gpu, cpu, memory) in self._sums.items()
        }
        for row in await self._ledger.usage(by="project", since=since, until=until):
            gpu, cpu, memory = sums.get(row.key, (0.0, 0.0, 0.0))
            sums[row.key] = (
                gpu + row.gpu_seconds * MILLI * counts,
                cpu + row.cpu_seconds * MILLI * counts,
                memory + row.memory_byte_seconds / MIB * counts,
            )
        self._weight = self._weight * kept + 1 - kept
        self._sums, self._until = sums, until


def take(state: State, used: Mapping[str, tuple[float, float, float]]) -> None:
    """Send every queue's past use, including that of its projects, to the core."""
    total, rules = state.nodes.total(state.tasks.counted_on), state.queues.rules
    sums: dict[str, list[float]] = {}
    for name, amounts in used.items():
        above = name
        while above in state.queues.slots:
            into = sums.setdefault(above, [0.0, 0.0, 0.0])
            for r, amount in enumerate(amounts):
                into[r] += amount
            rule = rules[state.queues.slots[above]]
            above = rule.parent if rule is not None else ""
    for name in sorted(state.queues.slots):
        gpu, cpu, memory = (
            round(MILLION * amount / there) if there else 0
            for amount, there in zip(sums.get(name, (0.0, 0.0, 0.0)), total, strict=True)
        )
        if state.queues.usage[state.queues.slots[name]].tolist() != [gpu, cpu, memory]:
            state.apply(UsageSeen(name, (gpu, cpu, memory)))
