"""Studies: what the controller knows of one, free of the library that keeps it; and their store.

A study has trials by number, from 0; a trial is *open* until the study was told its end. Studies
work one at a time, in a thread, and are stored before anybody acts on what they said.

A study is opened from its log when it is first used and kept while its experiment lives. What goes
wrong on the way, a commit that fails among it, closes the study: the next use begins again with
what is stored.
"""

import asyncio
import zlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol, TypeVar

import msgspec

from carrel_scheduler.ledger.records import Ledger
from carrel_schema.objects import Workload
from carrel_schema.sections import ExperimentSpec, Parameter

MOST_STEPS: Final = 2000
TrialState = Literal["open", "completed", "pruned", "failed", "stopped"]


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """One configuration and what came of it.

    Attributes:
        value: the objective; of an open trial ``None``.
        steps: reported values of the metric, in the order of their steps.
        error: why it failed: a sentence, and the last lines of its log.
    """

    number: int
    state: TrialState
    parameters: dict[str, Any] = {}
    value: float | None = None
    steps: tuple[tuple[int, float], ...] = ()
    error: str = ""


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """An open trial's work is over.

    ``completed`` takes the value that was reported; without one the trial has failed. ``stopped``
    is a trial that was not let finish, which is no failure of it.

    Attributes:
        latest: the last value that its workload's status has; counts where the study was told more
            values than it keeps.
    """

    number: int
    state: Literal["completed", "failed", "stopped"]
    error: str = ""
    latest: float | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """A study at a glance.

    Attributes:
        open: parameters of the open trials by number.
        pruned: numbers of the trials that were stopped early.
        leaving: pruned trials that were told so because they asked, and until when (epoch seconds)
            they may end by themselves.
        made: how many trials there are.
        exhausted: no configuration is left that was not tried.
        best: the completed trial with the best value.
        last_error: of the trial that failed last.
    """

    open: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    pruned: frozenset[int] = frozenset()
    leaving: Mapping[int, float] = field(default_factory=dict)
    made: int = 0
    completed: int = 0
    failed: int = 0
    exhausted: bool = False
    best: Trial | None = None
    last_error: str = ""


class Study(Protocol):
    """One experiment's study. Not for the event loop's thread; see ``experiments_studies``."""

    def standing(self) -> Standing:
        """How it stands."""
        ...

    def ask(self) -> bool:
        """Make the next trial; false when the space is exhausted."""
        ...

    def tell(self, ended: Ended) -> None:
        """End an open trial; one that is not open stays as it is."""
        ...

    def report(self, number: int, values: Sequence[tuple[int | None, float]]) -> None:
        """Take values of the metric at steps (``None``: the next step), judging each of them.

        The trial is pruned by the first that the pruner does not like. A value at a step that has
        one replaces it: a trial that was preempted may go back. Only the first ``MOST_STEPS`` are
        kept and judged.
        """
        ...

    def result(self, number: int, value: float) -> None:
        """The value that counts, whatever was reported."""
        ...

    def pruned(self, number: int) -> bool:
        """Whether the trial was stopped early."""
        ...

    def leave(self, number: int, until: float) -> bool:
        """Whether the trial is pruned; it asks, so it has time until then to end by itself."""
        ...

    def suggest(self, number: int, name: str, parameter: Parameter) -> Any:
        """A parameter that the trial defines as it runs; always the same for the same name.

        Raises ``BadSuggestion`` where it does not go with what was suggested before.
        """
        ...

    def trials(self) -> list[Trial]:
        """All trials in the order of their numbers."""
        ...


class BadSuggestion(Exception):  # noqa: N818 - an outcome to handle
    """A parameter that does not go with what the study knows of it; the message says why."""


T = TypeVar("T")
R = TypeVar("R")
# Optuna holds Python's lock while it computes: more threads would not be faster.
THREADS: Final = 1


class StoredStudy(Study, Protocol):
    """A study with the part of its log that is not stored yet."""

    def take_pending(self) -> Sequence[str]:
        """Hand over entries that are to be stored."""
        ...


Open = Callable[[str, ExperimentSpec, int, Sequence[str]], StoredStudy]


@dataclass(slots=True)
class _Kept:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    owner: Workload | None = None
    study: StoredStudy | None = None
    stored: int = 0


class Studies:
    """See the module.

    Args:
        ledger: holds the logs.
        epoch: of the present scheduler; writes of an older one are refused.
        make: opens a study from its log; Optuna's by default.
    """

    def __init__(
        self, ledger: Ledger, *, epoch: Callable[[], int], make: Open | None = None
    ) -> None:
        self._ledger, self._epoch = ledger, epoch
        self._make = make or _optuna
        self._kept: dict[str, _Kept] = {}
        self._thread = ThreadPoolExecutor(THREADS, thread_name_prefix="studies")

    async def use(self, owner: Workload, work: Callable[[Study], T]) -> T:
        """Do something with an experiment's study; returns when what it changed is stored.

        Raises what ``work`` raises, then nothing of it is stored; ``Fenced``.
        """
        kept = self._kept.setdefault(owner.meta.uid, _Kept())
        async with kept.lock:
            kept.owner = owner
            study = kept.study or await self._open(owner, kept)
            kept.study = None
            try:
                result = await self._run(work, study)
            except BadSuggestion:
                if not study.take_pending():
                    kept.study = study
                raise
            pending = study.take_pending()
            if pending:
                await self._ledger.append_study(
                    owner.meta.uid, pending, first=kept.stored, epoch=self._epoch()
                )
                kept.stored += len(pending)
            kept.study = study
            return result

    async def begun(self, uid: str) -> bool:
        """Whether an experiment has a study yet."""
        return bool(await self._ledger.study(uid, limit=1))

    async def owner(self, uid: str) -> Workload:
        """An experiment by its uid, as last used; raises ``NotFound``."""
        kept = self._kept.get(uid)
        if kept is not None and kept.owner is not None:
            return kept.owner
        return await self._ledger.get_by_uid(Workload, uid)

    async def _open(self, owner: Workload, kept: _Kept) -> StoredStudy:
        meta, spec = owner.meta, owner.spec.experiment
        if spec is None:
            raise ValueError(f"{meta.project}/{meta.name} is no experiment")
        entries = await self._ledger.study(meta.uid)
        kept.stored = len(entries)
        seed = zlib.crc32(meta.uid.encode()) if spec.seed is None else spec.seed
        name = f"{meta.project}/{meta.name}"
        return await self._run(lambda make: make(name, spec, seed, entries), self._make)

    async def _run(self, work: Callable[[T], R], argument: T) -> R:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, work, argument)

    def let_go(self, uid: str) -> None:
        """Forget an experiment that is over; its log stays with it."""
        self._kept.pop(uid, None)

    def close(self) -> None:
        """End the thread; what it does now is thrown away."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def _optuna(name: str, spec: ExperimentSpec, seed: int, entries: Sequence[str]) -> StoredStudy:
    # Takes long, and only services that have experiments need it.
    from carrel_scheduler.workloads.controllers.experiments.optuna_study import OptunaStudy

    return OptunaStudy(name, spec, seed, entries)
