"""What a crash left between objects and rows."""

import msgspec

from carrel_scheduler.ledger.records import Transition
from carrel_scheduler.ledger.resources import repair
from carrel_scheduler.ledger.resources.repair import Repairs
from carrel_schema.objects import Meta, TaskInfo, Workload, WorkloadSpec

NOW = 1000.0


def workload(uid: str = "u", created_at: float = 1.0) -> Workload:
    meta = Meta(name="n", project="p", uid=uid, created_at=created_at)
    return Workload(meta=meta, spec=WorkloadSpec(user="ada"))


def row(obj: Workload, before: str, after: str) -> Transition:
    return msgspec.structs.replace(Transition.first(obj), from_phase=before, to_phase=after)


def found(objects: list[Workload], entries: list[Workload], last: list[Transition]) -> Repairs:
    return repair.found(
        objects,
        {one.meta.uid: one for one in entries},
        {one.workload_uid: one for one in last},
        epoch=7,
        now=NOW,
    )


def test_nothing_is_done_where_nothing_is_missing() -> None:
    one = workload()
    assert found([one], [one], [Transition.first(one)]) == Repairs([], [], [], [])


def test_a_turn_without_rows_gets_one() -> None:
    one = workload()
    one.status.phase, one.status.attempt = "running", 1
    one.status.tasks = [TaskInfo(index=0, attempt=1, node="n", devices=(1, 2))]
    one.spec.resources = msgspec.structs.replace(one.spec.resources, gpu_milli=2000)
    (missing,) = found([one], [one], [Transition.first(one)]).rows
    assert (missing.from_phase, missing.to_phase, missing.attempt) == ("pending", "running", 1)
    assert (missing.gpu_milli, missing.cpu_milli, missing.node) == (2000, 100, "n")
    assert (missing.at, missing.epoch, missing.devices) == (NOW, 7, (1, 2))


def test_a_removal_is_finished() -> None:
    one = workload()
    what = found([], [one], [row(one, "starting", "running")])
    assert what.gone == ["u"]
    assert [(one.to_phase, one.gpu_milli) for one in what.rows] == [("stopped", 0)]
    assert found([], [one], [row(one, "running", "succeeded")]).rows == []


def test_a_creation_is_undone_unless_it_may_still_be_under_way() -> None:
    old, young = workload("old"), workload("young", created_at=NOW - 5)
    what = found([], [old, young], [Transition.first(old), Transition.first(young)])
    assert what == Repairs([], [], ["old"], [])


def test_objects_of_a_lost_database_are_entered() -> None:
    one = workload()
    what = found([one], [], [])
    assert what.unentered == [(one, Transition.first(one))]
    assert what.rows == []
