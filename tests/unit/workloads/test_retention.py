"""What of the files of work is removed when, and what never is."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from typing_extensions import override

from carrel_scheduler.engines.files.contract import Area, NoFiles, StoredFolder
from carrel_scheduler.ledger.open import open_ledger
from carrel_scheduler.ledger.records import MetricPoint
from carrel_scheduler.workloads.retention import (
    HOUR_SECONDS,
    METRICS_AT_ONCE,
    Retention,
    RetentionRules,
)
from carrel_scheduler.workloads.state.cache import WorkloadCache
from carrel_schema.files import StoredCopy
from carrel_schema.objects import Meta, Phase, Workload, WorkloadSpec, WorkloadStatus

DAY = 86_400.0
RULES = RetentionRules(artifact_seconds=9 * DAY, checkpoint_seconds=3 * DAY, project_bytes=100)


class FolderFiles(NoFiles):
    """Folders by area and uid, with their sizes."""

    def __init__(self) -> None:
        self.there: dict[tuple[Area, str], int] = {}

    @override
    async def folders(self, _project: str) -> Sequence[StoredFolder]:
        return [StoredFolder(area, "", uid) for area, uid in self.there]

    @override
    async def size(self, folder: StoredFolder) -> int:
        return self.there[folder.area, folder.uid]

    @override
    async def remove(self, folder: StoredFolder) -> None:
        del self.there[folder.area, folder.uid]


class Shelf:
    """A ledger on disk, folders, and a clock."""

    def __init__(self) -> None:
        self.now = 100 * DAY
        self.files = FolderFiles()

    async def open(self, path: Path, rules: RetentionRules = RULES) -> None:
        clock = lambda: self.now  # noqa: E731
        self.ledger = await open_ledger(f"sqlite:///{path}/x.sqlite", clock=clock, ids=str)
        self.retention = Retention(self.files, self.ledger, WorkloadCache(), rules, clock)

    async def work(self, uid: str, phase: Phase, ended_days_ago: float, **sizes: int) -> None:
        meta = Meta(name=uid, project="vision", uid=uid)
        status = WorkloadStatus(phase=phase, ended_at=self.now - ended_days_ago * DAY)
        await self.ledger.create(Workload(meta=meta, spec=WorkloadSpec(user="ada"), status=status))
        for area, size in sizes.items():
            self.files.there[Area(area), uid] = size

    def left(self) -> list[str]:
        return sorted(f"{area} {uid}" for area, uid in self.files.there)


@pytest.fixture
async def shelf(tmp_path: Path) -> AsyncIterator[Shelf]:
    shelf = Shelf()
    await shelf.open(tmp_path)
    yield shelf
    await shelf.ledger.close()


async def test_files_go_with_their_work_or_when_their_time_is_over(shelf: Shelf) -> None:
    await shelf.work("old", "succeeded", 5, artifacts=1, checkpoints=1)
    await shelf.work("older", "failed", 10, artifacts=1, checkpoints=1)
    await shelf.work("suspended", "stopped", 50, artifacts=1, checkpoints=1)
    shelf.files.there[Area.CHECKPOINTS, "deleted"] = 1
    await shelf.retention.sweep()
    assert shelf.left() == ["artifacts old", "artifacts suspended", "checkpoints suspended"]


async def test_beyond_the_room_of_a_project_ended_work_goes_first_the_oldest(shelf: Shelf) -> None:
    await shelf.work("running", "running", 0, artifacts=60)
    await shelf.work("new", "succeeded", 1, artifacts=30)
    await shelf.work("older", "succeeded", 2, artifacts=30, checkpoints=20)
    await shelf.retention.sweep()
    assert shelf.left() == ["artifacts new", "artifacts running"]
    shelf.files.there[Area.ARTIFACTS, "running"] = 90
    await shelf.retention.sweep()  # it is measured once an hour
    assert shelf.left() == ["artifacts new", "artifacts running"]
    shelf.now += HOUR_SECONDS
    await shelf.retention.sweep()
    assert shelf.left() == ["artifacts running"]


async def test_copies_stay_but_for_those_that_were_never_recorded(shelf: Shelf) -> None:
    shelf.files.there |= {(Area.COPIES, "model"): 500, (Area.COPIES, "half"): 1}
    await shelf.ledger.add_copy("model", "model", StoredCopy(project="vision", name="m"))
    await shelf.retention.sweep()
    assert shelf.left() == ["copies half", "copies model"]
    shelf.now += HOUR_SECONDS
    await shelf.retention.sweep()
    assert shelf.left() == ["copies model"]


async def test_reported_values_go_with_their_work(shelf: Shelf) -> None:
    await shelf.work("there", "succeeded", 5)
    points = [MetricPoint(at=1.0, step=number, name="loss", value=0.5) for number in range(3)]
    for uid in ("there", *(f"deleted-{number}" for number in range(2 * METRICS_AT_ONCE + 1))):
        await shelf.ledger.add_metrics(uid, points)
    await shelf.retention.sweep()
    assert await shelf.ledger.metrics("there") == {"loss": points}
    assert await shelf.ledger.metrics("deleted-0") == {}
    assert await shelf.ledger.remove_orphaned_metrics(1) == 0
