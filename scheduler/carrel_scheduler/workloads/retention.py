"""Retention of the files of work, and their removal after it.

Artifacts and checkpoints go with the deletion of their work, some days after its end, or, the
oldest first, when the files of a project's ended work are more than its room. Those of work that
runs, waits or is suspended stay. Copies (models, kept checkpoints) stay until somebody deletes
them. Reported values go with the deletion of their work, decisions after the time that
administrators set.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from carrel_scheduler.engines.contract import EngineError
from carrel_scheduler.engines.files.contract import Area, Files, StoredFolder
from carrel_scheduler.ledger.records import Ledger
from carrel_scheduler.ledger.store import ObjectNotFound
from carrel_scheduler.workloads.state.cache import WorkloadCache
from carrel_scheduler.workloads.state.phases import FINAL
from carrel_schema.governance.retention import retention_of
from carrel_schema.objects import Workload

log = logging.getLogger(__name__)
DAY_SECONDS: Final = 86_400.0
HOUR_SECONDS: Final = 3600.0
SWEEP_SECONDS: Final = 60.0
METRICS_AT_ONCE: Final = 100
DECISIONS_AT_ONCE: Final = 1000
CLUSTER_SWEEP_SECONDS: Final = 6 * HOUR_SECONDS
"""The interval on a cluster, where a sweep takes a pod for each project."""


@dataclass(frozen=True, slots=True)
class RetentionRules:
    """Retention of files after the end of their work, in seconds; 0: until the work is deleted.

    Attributes:
        project_bytes: of all artifacts and checkpoints of a project; 0: no bound.
    """

    artifact_seconds: float = 90 * DAY_SECONDS
    checkpoint_seconds: float = 30 * DAY_SECONDS
    project_bytes: int = 200 * 2**30

    def expires_at(self, area: Area, workload: Workload) -> float | None:
        """The time at which the files of a workload are removed; ``None``: not by themselves."""
        seconds = {Area.ARTIFACTS: self.artifact_seconds, Area.CHECKPOINTS: self.checkpoint_seconds}
        status, kept = workload.status, seconds.get(area, 0.0)
        if status.phase not in FINAL or status.ended_at is None or not kept:
            return None
        return status.ended_at + kept


def expired(
    rules: RetentionRules, folders: Iterable[tuple[StoredFolder, Workload]], now: float
) -> Iterator[StoredFolder]:
    """The entries that are older than their retention."""
    for folder, workload in folders:
        at = rules.expires_at(folder.area, workload)
        if at is not None and at <= now:
            yield folder


def beyond(
    most: int, folders: Iterable[tuple[StoredFolder, Workload]], sizes: Mapping[StoredFolder, int]
) -> Iterator[StoredFolder]:
    """The folders of ended work to remove so that no project has more than ``most`` bytes."""
    used: defaultdict[str, int] = defaultdict(int)
    ended: list[tuple[float, StoredFolder, str]] = []
    for folder, workload in folders:
        used[workload.meta.project] += sizes[folder]
        if workload.status.phase in FINAL:
            ended.append((workload.status.ended_at or 0.0, folder, workload.meta.project))
    for _, folder, project in sorted(ended, key=lambda one: one[0]):
        if most and used[project] > most and sizes[folder]:
            used[project] -= sizes[folder]
            yield folder


class Retention:
    """Removes data whose retention has expired.

    Args:
        files: of the engine.
        ledger: which work and which copies there are.
        cache: every workload.
        rules: how long what is kept.
        clock: epoch seconds.
    """

    def __init__(
        self,
        files: Files,
        ledger: Ledger,
        cache: WorkloadCache,
        rules: RetentionRules,
        clock: Callable[[], float],
    ) -> None:
        self._files, self._ledger, self._cache = files, ledger, cache
        self._rules, self._clock = rules, clock
        self._unknown: dict[StoredFolder, float] = {}
        self._measured_at = 0.0

    @property
    def pause_seconds(self) -> float:
        """The pause between two sweeps."""
        return CLUSTER_SWEEP_SECONDS if self._files.by_project else SWEEP_SECONDS

    async def sweep(self) -> None:
        """Remove what is kept no longer; the rooms of projects are measured once an hour."""
        projects = sorted(self._cache.projects) if self._files.by_project else [""]
        for project in projects:
            try:
                await self._sweep(project)
            except EngineError as error:
                log.warning("files of work cannot be listed: %s", error)
        if self._clock() - self._measured_at >= HOUR_SECONDS:
            self._measured_at = self._clock()
            await self._remove_metrics()
            await self._remove_decisions()

    async def _remove_metrics(self) -> None:
        """Remove values of deleted work in small portions, so that others can write in between."""
        removed = 0
        while (count := await self._ledger.remove_orphaned_metrics(METRICS_AT_ONCE)) > 0:
            removed += count
        if removed:
            log.info("the reported values of %d deleted workloads are removed", removed)

    async def _remove_decisions(self) -> None:
        """Remove old decisions in small portions."""
        days = retention_of(await self._ledger.settings()).decision_days
        if days is None:
            return
        before, removed = self._clock() - days * DAY_SECONDS, 0
        while (count := await self._ledger.remove_decisions(before, DECISIONS_AT_ONCE)) > 0:
            removed += count
        if removed:
            log.info("%d decisions are removed: they are older than %d days", removed, days)

    async def _sweep(self, project: str) -> None:
        now, known = self._clock(), []
        copies = {record.uid for record in await self._ledger.copies()}
        for folder in await self._files.folders(project):
            if folder.area is Area.COPIES:
                if folder.uid not in copies and self._long_unknown(folder, now):
                    await self._remove(folder, "a copy that was never recorded")
                continue
            workload = await self._workload(folder.uid)
            if workload is None:
                await self._remove(folder, "its work was deleted")
            else:
                known.append((folder, workload))
        gone = list(expired(self._rules, known, now))
        for folder in gone:
            await self._remove(folder, "its time after the end is over")
        if now - self._measured_at < HOUR_SECONDS:
            return
        rest = [one for one in known if one[0] not in gone]
        sizes = {folder: await self._files.size(folder) for folder, _ in rest}
        for folder in beyond(self._rules.project_bytes, rest, sizes):
            await self._remove(folder, "its project has no more room")

    def _long_unknown(self, folder: StoredFolder, now: float) -> bool:
        """Whether a folder has been unknown for an hour: its workload would be recorded by now."""
        return now - self._unknown.setdefault(folder, now) >= HOUR_SECONDS

    async def _workload(self, uid: str) -> Workload | None:
        entry = self._cache.get(uid)
        if entry is not None:
            return entry.workload
        try:
            return await self._ledger.get_by_uid(Workload, uid)
        except ObjectNotFound:
            return None

    async def _remove(self, folder: StoredFolder, why: str) -> None:
        log.info("%s of %s are removed: %s", folder.area, folder.uid, why)
        self._unknown.pop(folder, None)
        await self._files.remove(folder)
