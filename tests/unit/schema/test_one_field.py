"""A field that the schema gains is asked for, checked, stored, answered and put in manifests."""

from typing import Annotated

import msgspec
import pytest

from carrel_scheduler.api.http.requests import read_body
from carrel_scheduler.api.models.validators import read, validator_of
from carrel_scheduler.api.problems import Problem
from carrel_scheduler.manifests.schema import of_struct
from carrel_schema.constraints import Constraint, Mark, fields
from carrel_schema.objects import Work, WorkloadSpec
from carrel_schema.wire import WorkloadCreate, WorkloadSpecOut


class Nicer(WorkloadCreate, kw_only=True):
    """A request with one more field.

    Attributes:
        nice: how much it yields.
    """

    nice: Annotated[int, Constraint(ge=0, le=19)] = 3
    seen: Annotated[bool, Mark.INTERNAL] = False


def test_it_is_read_with_its_default_and_refused_with_all_others_that_are_wrong() -> None:
    asked = {"name": "a", "project": "p", "command": ["x"]}
    assert read(Nicer, asked).nice == 3
    assert read(Nicer, asked | {"nice": 4}).nice == 4
    with pytest.raises(Problem) as refused:
        read_body(Nicer, msgspec.json.encode(asked | {"nice": 20, "tasks": 0, "seen": True}))
    found = {(one.field, one.code, one.expected) for one in refused.value.errors}
    assert ("nice", "too_big", "at most 19") in found
    assert {field for field, _, _ in found} == {"nice", "tasks", "seen"}


def test_it_is_described_with_its_bounds_in_manifests_and_openapi() -> None:
    told = of_struct(Nicer)["properties"]["nice"]
    assert told == {
        "description": "How much it yields. Default: 3.",
        "type": "integer",
        "format": "int64",
        "minimum": 0,
        "maximum": 19,
    }
    said = validator_of(Nicer).model_json_schema()["properties"]
    assert (said["nice"]["minimum"], said["nice"]["maximum"]) == (0, 19)
    assert "seen" not in said


def test_what_is_asked_of_work_is_asked_for_stored_and_answered() -> None:
    work = fields(Work).keys()
    for kind in (WorkloadCreate, WorkloadSpec, WorkloadSpecOut):
        assert work <= fields(kind).keys()
    assert work <= validator_of(WorkloadCreate).model_fields.keys()
