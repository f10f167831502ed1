"""What requests take and refuse, without a server."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from carrel_scheduler.api import refusals
from carrel_scheduler.api.http.requests import read_body, read_query
from carrel_scheduler.api.models import validators
from carrel_scheduler.api.models.projects import ProjectChanges
from carrel_scheduler.api.models.queries import LogQuery, UsageQuery
from carrel_scheduler.api.models.validators import Validator
from carrel_scheduler.api.models.workloads import (
    ActivityIn,
    ReportIn,
    WorkloadChanges,
    WorkspaceClaim,
)
from carrel_scheduler.api.problems import Problem
from carrel_schema.answers import ProjectCreate
from carrel_schema.wire import WorkloadCreate

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=5,
)
STRUCTS = (WorkloadCreate, WorkspaceClaim, ReportIn, ActivityIn, ProjectCreate)
MODELS: list[type[Validator]] = [
    *map(validators.validator_of, STRUCTS),
    *map(validators.patch_of, (ProjectChanges, WorkloadChanges)),
]
FIELDS = [(model, name) for model in MODELS for name in model.model_fields]


@given(st.sampled_from(STRUCTS), st.binary(max_size=60))
def test_bytes_that_are_no_object_are_refused_as_a_problem(model: Any, body: bytes) -> None:
    with pytest.raises(Problem) as refused:
        read_body(model, b"[" + body)
    assert refused.value.status in (400, 422)


@given(st.sampled_from(FIELDS), JSON)
def test_any_json_in_any_field_is_read_or_refused_naming_it(
    field: tuple[Any, str], value: Any
) -> None:
    model, name = field
    body = {name: value, "surely unknown": value}
    with pytest.raises(ValidationError) as refused:
        model.model_validate(body)
    problem = refusals.from_validation(refused.value, body)
    assert "surely unknown" in {one.field for one in problem.errors}
    assert all(one.field and one.code and one.expected for one in problem.errors)


def create(**fields: Any) -> WorkloadCreate:
    body = {"name": "a", "project": "p", "command": ["x"], **fields}
    return validators.read(WorkloadCreate, body)


def test_defaults_are_those_of_the_documentation() -> None:
    body = create()
    assert (body.gpus, body.cpu_millicores, body.memory_bytes) == (0.0, 100, 2**30)
    assert (body.tasks, body.backoff_limit, body.grace_seconds) == (1, 6, 30.0)
    assert body.restart_policy == "on-failure"
    assert body.spawner_fields() == []


@pytest.mark.parametrize("name", ["a", "a-1", "0", "x" * 63])
def test_names_that_are_dns_labels_pass(name: str) -> None:
    assert create(name=name).name == name


@pytest.mark.parametrize("name", ["", "-a", "a-", "A", "a.b", "a_b", "ä", "x" * 64, "a\n"])
def test_names_that_are_not_are_refused_with_what_is_right(name: str) -> None:
    with pytest.raises(ValidationError) as refused:
        create(name=name)
    problem = refusals.from_validation(refused.value)
    assert problem.code == "bad_name"
    assert "63" in problem.errors[0].expected


@pytest.mark.parametrize("path", ["..", "a/../b", "/a", ".", "", "a/", "../a"])
def test_files_stay_in_the_folder_of_the_task(path: str) -> None:
    with pytest.raises(ValidationError):
        create(files={path: ""})


@pytest.mark.parametrize("path", ["a", "a/b.py", ".env", "a..b"])
def test_relative_files_pass(path: str) -> None:
    assert create(files={path: ""}).files


def test_a_limit_below_the_quota_is_refused() -> None:
    body = b'{"name": "p", "quota": {"gpus": 2}, "limit": {"gpus": 1}}'
    with pytest.raises(Problem) as refused:
        read_body(ProjectCreate, body)
    assert refused.value.code == "limit_below_quota"


@pytest.mark.parametrize(
    ("fields", "field", "right"),
    [
        ({"kind": "workspace", "gpus": 1}, "restart_when_stalled", "only trainings"),
        ({}, "restart_when_stalled", "without GPUs"),
        ({"gpus": 1, "restart_policy": "never"}, "restart_when_stalled", "on-failure or always"),
        ({"gpus": 1, "stall_after_seconds": 5}, "stall_after_seconds", "60"),
    ],
)
def test_a_rule_for_stalls_that_means_nothing_is_refused(
    fields: dict[str, Any], field: str, right: str
) -> None:
    body = {"name": "a", "project": "p", "command": ["x"], "restart_when_stalled": True, **fields}
    with pytest.raises(Problem) as refused:
        read_body(WorkloadCreate, json.dumps(body).encode())
    problem = refused.value
    assert field in f"{problem.errors[0].field} {problem.errors[0].expected}"
    assert right in problem.errors[0].expected


def test_a_training_has_a_rule_for_stalls_of_its_own() -> None:
    own = create(gpus=1, restart_when_stalled=False, stall_after_seconds=600)
    assert (own.restart_when_stalled, own.stall_after_seconds) == (False, 600.0)


def test_queries_are_read_from_text() -> None:
    query = read_query(LogQuery, {"follow": [b"true"], "tail": [b"10"], "since": [b"1.5"]})
    assert query == LogQuery(follow=True, tail=10, since=1.5)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"since": [b"nan"]}, "not_finite"),
        ({"since": [b"-1"]}, "too_small"),
        ({"by": [b"cat"]}, "unknown_value"),
        ({"by": [b"\xff"]}, "malformed_request"),
        ({"other": [b"1"]}, "unknown_field"),
    ],
)
def test_wrong_queries_are_refused(arguments: dict[str, list[bytes]], code: str) -> None:
    with pytest.raises(Problem) as refused:
        read_query(UsageQuery, arguments)
    assert refused.value.code == code
