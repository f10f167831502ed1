"""Making room for one step of a job by telling others to stop.

Shares are taken in the order of victims until the step finds its places; then, from the last taken
on, whoever turns out not to be needed is spared (if that is everybody, the room is there without
this claim, and dealing it out is not its business); then whoever has room elsewhere gets it held
there and is moved rather than stopped. Nothing has changed when there is no answer.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from carrel_scheduler.core.cycle.cycle import Cycle
from carrel_scheduler.core.cycle.moves import Cause
from carrel_scheduler.core.cycle.placing import place
from carrel_scheduler.core.preemption.victim_order import Share
from carrel_scheduler.core.work.jobs import Job


def nobody(_share: Share) -> bool:
    """Everybody may be stopped for good."""
    return False


def everybody(_share: Share) -> bool:
    """Everybody must have a place."""
    return True


@dataclass(frozen=True, slots=True)
class Search:
    """A search for one claim.

    Attributes:
        preemptor, step: whose tasks need places.
        cause: what victims are told.
        movers: those who may only be stopped if they have a place elsewhere.
        own: what victims of the preemptor's own queue are told, where it is something else; they
            leave so that the claim stands, so they are not moved either.
    """

    cycle: Cycle
    preemptor: Job
    step: tuple[int, ...]
    cause: Cause
    movers: Callable[[Share], bool] = nobody
    own: Cause | None = None

    def run(self, shares: Iterator[Share]) -> bool:
        """Whether room was made: victims are stopped and the step's places are held."""
        moves = self.cycle.moves
        begin = moves.mark()
        taken: list[Share] = []
        tries = 0
        for share in shares:
            self._stop(share)
            taken.append(share)
            if not self._may_fit():
                continue
            tries += 1
            if tries > self.cycle.settings.search_steps:
                break
            moves.rollback(begin)
            chosen = self._choose(taken)
            if chosen is not None:
                needed = self._spare(chosen)
                if not needed:
                    return False
                self._settle(needed)
                return True
            for other in taken:
                self._stop(other)
        moves.rollback(begin)
        return False

    def _choose(self, taken: list[Share]) -> list[Share] | None:
        """Of those taken so far the ones on a node of the last, or all, if they suffice."""
        last = taken[-1]
        if len(self.step) == 1:
            for node in last.nodes:
                here = _with_those_before(taken, [one for one in taken if node in one.nodes])
                if len(here) < len(taken) and self._try(here):
                    return here
        return list(taken) if self._try(taken) else None

    def _spare(self, taken: list[Share]) -> list[Share]:
        """Those who are needed, the last taken spared first."""
        kept = list(taken)
        for share in reversed(taken):
            if self._still_first(share, kept):
                fewer = [other for other in kept if other is not share]
                if self._try(fewer):
                    kept = fewer
        return kept

    def _still_first(self, share: Share, kept: Sequence[Share]) -> bool:
        """Whether it is the last share kept of its job: what runs on must be whole."""
        mine = [other for other in kept if other.job is share.job]
        return mine[-1] is share

    def _try(self, shares: list[Share]) -> bool:
        moves = self.cycle.moves
        mark = moves.mark()
        for share in shares:
            self._stop(share)
        fits = self._may_fit() and self._fits(shares)
        moves.rollback(mark)
        return fits

    def _fits(self, shares: Sequence[Share]) -> bool:
        """Whether the step finds its places, and the victims theirs where they must."""
        moves = self.cycle.moves
        mark = moves.mark()
        found = self._place() and self._move_all(self._bound_to_move(shares))
        moves.rollback(mark)
        return found

    def _settle(self, shares: list[Share]) -> None:
        for share in shares:
            self._stop(share)
        if not self._place():
            raise AssertionError(f"room made for {self.preemptor.uid} does not hold it")
        bound = self._bound_to_move(shares)
        if not self._move_all(bound):
            raise AssertionError(f"those who make room for {self.preemptor.uid} have no place")
        ended: set[str] = set()
        for share in self._in_order_of_service(shares):
            if share in bound or share.job.uid in ended or self._is_own(share):
                continue
            if not self._move(share) and share.carries:
                ended.add(share.job.uid)  # what it could run beside it is of no use

    def _bound_to_move(self, shares: Sequence[Share]) -> list[Share]:
        """Those that must have a place, unless what carries them may be stopped for good."""
        bound: list[Share] = []
        ends: set[int] = set()
        for share in self._in_order_of_service(shares):
            if not self.movers(share):
                ends |= {share.job.slot} if share.carries else set()
            elif share.job.slot not in ends:
                bound.insert(0, share)
        return bound

    def _place(self) -> bool:
        cycle = self.cycle
        if cycle.over_limit(self.preemptor, self.step) is not None:
            return False
        return place(cycle, self.preemptor, self.step, soon=True)

    def _may_fit(self) -> bool:
        """A quick look before places are sought: whether the first class fits often enough."""
        shape = self.preemptor.shape
        cls = shape.classes[self.step[0]]
        need = sum(shape.classes[index] == cls for index in self.step)
        counts = self.cycle.state.capacity.counts(self.cycle.free_capacity.soon, cls)
        return int(counts.sum()) >= need

    def _is_own(self, share: Share) -> bool:
        return self.own is not None and share.job.queue == self.preemptor.queue

    def _stop(self, share: Share) -> None:
        cause = self.own if self.own is not None and self._is_own(share) else self.cause
        for index in share.indices:
            self.cycle.moves.take_back(share.job, index, cause)

    def _move_all(self, shares: Sequence[Share]) -> bool:
        """Places for all; the largest first, since the small find one anywhere."""
        by_size = sorted(shares, key=lambda share: share.amounts, reverse=True)
        return all(self._move(share) for share in by_size)

    def _move(self, share: Share) -> bool:
        """Hold room for what a victim gives: its own where nobody took it, else elsewhere."""
        cycle, job = self.cycle, share.job
        mark = cycle.moves.mark()
        if cycle.over_limit(job, share.indices) is not None:
            return False
        homeless = [i for i in share.indices if job.shape.bound or not self._returns(job, i)]
        if not homeless or place(cycle, job, homeless, soon=True):
            return True
        cycle.moves.rollback(mark)
        return False

    def _returns(self, job: Job, index: int) -> bool:
        if index not in job.rows:
            return False
        own = self.cycle.state.tasks.footprint(job.rows[index])
        if not self.cycle.free_capacity.has([own], soon=True):
            return False
        self.cycle.moves.reserve(job, index, own, fixed=False)
        return True

    def _in_order_of_service(self, shares: Sequence[Share]) -> list[Share]:
        return list(reversed(shares))


def _with_those_before(taken: Sequence[Share], chosen: Sequence[Share]) -> list[Share]:
    """The chosen, and what their jobs gave before them: what runs on must be whole."""
    last = {share.job.spec.uid: number for number, share in enumerate(taken) if share in chosen}
    return [
        share for number, share in enumerate(taken) if number <= last.get(share.job.spec.uid, -1)
    ]
