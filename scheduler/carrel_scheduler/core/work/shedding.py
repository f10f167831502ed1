"""What a running workload gives back first, and what of it runs in vain.

Room is given back in the reverse of the order in which it was taken: surplus tasks one at a time
(or by halves), then surplus groups whole, and then what is left as one indivisible unit, because a
gang below its minimum does no work.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from carrel_scheduler.core.work.structures import LeafState, Part, Structure, Tally


class Shed(NamedTuple):
    """Tasks that are given back together.

    ``core``: the last of the steps, which leaves nothing running.
    """

    tasks: tuple[int, ...]
    core: bool


def shed_steps(structure: Structure, states: Sequence[LeafState]) -> Iterator[Shed]:
    """The steps in which a running workload gives its tasks back, first to go first.

    Together they are all running tasks, each once. Lazy: taking few steps of many costs little.
    """
    if (leaf := structure.single) is not None and states[0].there <= leaf.least:
        if states[0].running:
            yield Shed(states[0].running, core=True)
        return
    left = _Left(structure, states)
    while (step := left.surplus(structure.parts[0])) or (step := left.group(structure.parts[0])):
        yield Shed(step, core=False)
    if core := left.all():
        yield Shed(core, core=True)


def stale_tasks(structure: Structure, states: Sequence[LeafState]) -> tuple[int, ...]:
    """Tasks that hold room in vain because others of their gang are missing.

    All of them when the workload as a whole is below its minimum; otherwise those of optional
    groups that are below theirs, while the rest goes on working. A group beyond the minimum of the
    group around it that has no task at all is simply not grown yet: counting it as broken would end
    every workload with optional groups as soon as it has started without them. Nothing is stale
    once a task has succeeded, for the workload is then ending.
    """
    if any(state.succeeded for state in states):
        return ()
    if (leaf := structure.single) is not None:
        running = states[0].running
        return running if len(running) < leaf.least else ()
    return _Left(structure, states).in_vain(structure.parts[0])


def is_stale(structure: Structure, states: Sequence[LeafState]) -> bool:
    """Whether some tasks hold room in vain; see ``stale_tasks``."""
    return bool(stale_tasks(structure, states))


def smaller_size(there: int, least: int) -> int:
    """The largest size below ``there`` in the doublings of a minimum; at least the minimum."""
    size = max(least, 1)
    if there <= size:
        return least
    while size * 2 < there:
        size *= 2
    return size


class _Left:
    """What is still running while steps are taken away."""

    def __init__(self, structure: Structure, states: Sequence[LeafState]) -> None:
        self._parts = structure.parts
        self._leaves = structure.leaves
        self._running = [list(state.running) for state in states]
        self._tally = Tally(structure, [state.there for state in states])

    def surplus(self, part: Part) -> tuple[int, ...]:
        """The next surplus tasks of single leaves; empty when there are none."""
        if part.leaf < 0:
            return next(filter(None, map(self.surplus, self._reversed(part))), ())
        there = self._tally.there[part.number]
        if there <= part.least:
            return ()
        return self._drop(part, there - smaller_size(there, part.least) if part.doubles else 1)

    def group(self, part: Part) -> tuple[int, ...]:
        """The next surplus group, whole: the deepest, and what is broken before what works."""
        children = self._reversed(part)
        if step := next(filter(None, map(self.group, children)), ()):
            return step
        there = self._tally.there[part.number]
        if part.leaf >= 0 or there < part.least:
            return ()
        broken = [child for child in children if not self._tally.met[child.number]]
        working = [child for child in children if self._tally.met[child.number]]
        for child in broken + (working if there > part.least else []):
            if step := self._drop_all(child):
                return step
        return ()

    def all(self) -> tuple[int, ...]:
        """Everything that is left."""
        return tuple(sorted(self._drop_all(self._parts[0])))

    def in_vain(self, part: Part) -> tuple[int, ...]:
        """What runs in groups that are below their minimum."""
        if not self._tally.met[part.number]:
            return tuple(sorted(self._drop_all(part)))
        children = (self._parts[child] for child in part.children)
        return tuple(task for child in children for task in self.in_vain(child))

    def _drop(self, part: Part, size: int) -> tuple[int, ...]:
        """Take the least important tasks of a leaf away, the last one first."""
        running = self._running[part.leaf]
        kept = max(0, len(running) - size)
        step = tuple(reversed(running[kept:]))
        del running[kept:]
        self._tally.add(part, -len(step))
        return step

    def _drop_all(self, part: Part) -> tuple[int, ...]:
        if part.leaf >= 0:
            return self._drop(part, len(self._running[part.leaf]))
        return tuple(task for child in self._reversed(part) for task in self._drop_all(child))

    def _reversed(self, part: Part) -> list[Part]:
        children = (self._parts[child] for child in part.children)
        return sorted(children, key=self._tally.rank, reverse=True)
