"""The studies of all experiments, and how they are stored.

Studies work one at a time, in a thread, and are stored before anything acts on their answers.

A study is opened from its log when it is first used and kept while its experiment lives. What goes
wrong on the way, a commit that fails among it, closes the study: the next use begins again with
what is stored.
"""

import asyncio
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final, TypeVar

from carrel_scheduler.ledger.records import Ledger
from carrel_scheduler.workloads.controllers.experiments.contract import (
    BadSuggestion,
    StoredStudy,
    Study,
)
from carrel_scheduler.workloads.controllers.experiments.items import ItemStudy
from carrel_schema.objects import Workload
from carrel_schema.sections import ExperimentSpec

T = TypeVar("T")
R = TypeVar("R")
# Optuna holds Python's lock while it computes: more threads would not be faster.
THREADS: Final = 1


Open = Callable[[str, ExperimentSpec, int, Sequence[str]], StoredStudy]


@dataclass(slots=True)
class _OpenStudy:
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
        self._kept: dict[str, _OpenStudy] = {}
        self._thread = ThreadPoolExecutor(THREADS, thread_name_prefix="studies")

    async def use(self, owner: Workload, work: Callable[[Study], T]) -> T:
        """Run ``work`` with an experiment's study; returns when its changes are stored.

        Raises what ``work`` raises, then nothing of it is stored; ``Fenced``.
        """
        kept = self._kept.setdefault(owner.meta.uid, _OpenStudy())
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
        """An experiment by its uid, as last used; raises ``ObjectNotFound``."""
        kept = self._kept.get(uid)
        if kept is not None and kept.owner is not None:
            return kept.owner
        return await self._ledger.get_by_uid(Workload, uid)

    async def _open(self, owner: Workload, kept: _OpenStudy) -> StoredStudy:
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
        """Forget an ended experiment; its log stays stored."""
        self._kept.pop(uid, None)

    def close(self) -> None:
        """End the thread; the result of its current work is discarded."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def _optuna(name: str, spec: ExperimentSpec, seed: int, entries: Sequence[str]) -> StoredStudy:
    if spec.map:
        return ItemStudy(spec, entries)
    # Takes long, and only services that have experiments need it.
    from carrel_scheduler.workloads.controllers.experiments.optuna_study import OptunaStudy

    return OptunaStudy(name, spec, seed, entries)
