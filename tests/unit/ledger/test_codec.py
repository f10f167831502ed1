"""Objects and rows as columns, and back."""

import math

import msgspec
import pytest

from carrel_scheduler.ledger.columns import codec
from carrel_scheduler.ledger.columns.tables import decisions, transitions
from carrel_scheduler.ledger.errors import InvalidArgument
from carrel_scheduler.ledger.records import Decision, Transition
from carrel_schema.objects import (
    Meta,
    Preemption,
    Project,
    ProjectSpec,
    ReasonInfo,
    TaskInfo,
    Workload,
    WorkloadSpec,
    WorkloadStatus,
)


def full_workload() -> Workload:
    """A workload with something in every kind of field."""
    return Workload(
        meta=Meta(name="train-1", project="vision", uid="uid", labels={"a": "ü"}),
        spec=WorkloadSpec(user="ada", volumes=[("/data", "data")], priority="high", port=8080),
        status=WorkloadStatus(
            phase="running",
            reason=ReasonInfo(token="Starting", data={"nested": {"list": [1, 2.5, None]}}),
            tasks=[TaskInfo(index=0, attempt=2, node="n", devices=(1, 2), signal=9)],
            last_preemption=Preemption(at=1.5, rule="r", for_project="p", for_workload="w"),
        ),
    )


@pytest.mark.parametrize("obj", [full_workload(), Project(meta=Meta(name="p"), spec=ProjectSpec())])
def test_objects_survive(obj: Workload | Project) -> None:
    encoded = codec.encode(obj)  # type: ignore[type-var]
    assert encoded.decode() == obj


def test_filters_have_columns() -> None:
    encoded = codec.encode(full_workload())
    columns = (encoded.phase, encoded.user, encoded.workload_kind)
    assert columns == ("running", "ada", "training")


def test_copies_share_nothing() -> None:
    obj = full_workload()
    encoded = codec.encode(obj)
    obj.meta.labels["a"] = "changed"
    first = encoded.decode()
    assert first.meta.labels == {"a": "ü"}
    first.meta.labels["a"] = "changed"
    assert encoded.decode().meta.labels == {"a": "ü"}


def test_what_could_not_be_read_back_is_refused() -> None:
    broken = full_workload()
    broken.status.metrics = {"loss": math.nan}
    with pytest.raises(InvalidArgument, match="status"):
        codec.encode(broken)
    broken = full_workload()
    broken.spec.tasks = "three"  # type: ignore[assignment]
    with pytest.raises(InvalidArgument, match="spec"):
        codec.encode(broken)
    broken = full_workload()
    broken.spec.environment = {"A": "\ud800"}
    with pytest.raises(InvalidArgument, match="spec"):
        codec.encode(broken)
    with pytest.raises(InvalidArgument, match="kind"):
        codec.encode(Meta(name="x"))  # type: ignore[type-var]


def test_unknown_fields_of_a_newer_version_are_passed_over() -> None:
    spec = msgspec.json.encode({"user": "ada", "invented_later": 1}).decode()
    obj = codec.build(Workload, Meta(name="x"), spec, "{}")
    assert obj.spec == WorkloadSpec(user="ada")


def test_rows_survive() -> None:
    reason = ReasonInfo(token="QuotaUsed", data={"short": 1000})
    move = Transition(
        at=1.5,
        epoch=2,
        workload_uid="uid",
        workload="w",
        project="p",
        user="u",
        kind="training",
        attempt=1,
        from_phase="pending",
        to_phase="starting",
        gpu_milli=500,
        borrowed=True,
        node="n",
        devices=(0, 7),
        reason=reason,
    )
    action = Decision(
        at=1.5,
        epoch=2,
        cycle=3,
        input_version=4,
        action="bind",
        workload_uid="uid",
        workload="w",
        project="p",
        reason=None,
    )
    for row, table, read in (
        (move, transitions, codec.transition),
        (action, decisions, codec.decision),
    ):
        names = list(row.__struct_fields__)
        assert set(names) == set(table.c.keys())
        assert read(dict(zip(names, (0, *codec.row_values(row)), strict=True))) == row
