"""Problems are typed, stable, and say nothing they should not."""

import re
from typing import Any

import msgspec
import pytest

from carrel_scheduler.api import problems, refusals
from carrel_scheduler.api.problems import Code
from carrel_scheduler.ledger.errors import InvalidArgument, LedgerUnavailable, StorageFull
from carrel_scheduler.ledger.store import Expired, ObjectExists, ObjectNotFound, VersionConflict
from carrel_scheduler.workloads.admission import NotAdmitted
from carrel_scheduler.workloads.contract import NotAccepted


def test_codes_are_snake_case_and_unique() -> None:
    values = [code.value for code in Code]
    assert len(set(values)) == len(values)
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", value) for value in values)


def test_a_problem_on_the_wire() -> None:
    problem = problems.invalid_field("gpus", Code.TOO_BIG, 9, "at most 4")
    body = msgspec.json.decode(msgspec.json.encode(problem.body()))
    assert body == {
        "type": "about:blank",
        "title": "Not accepted",
        "status": 422,
        "code": "too_big",
        "detail": "gpus: expected at most 4, not 9",
        "errors": [{"field": "gpus", "code": "too_big", "expected": "at most 4", "value": 9}],
    }


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ("cyc", "x: expected y, not `cyc`"),
        (2.5, "x: expected y, not 2.5"),
        ("", "x: expected y"),
        (None, "x: expected y"),
        (True, "x: expected y"),
        (["a"], "x: expected y"),
        ("two\nlines", "x: expected y"),
        ("long" * 20, "x: expected y"),
    ],
)
def test_a_sentence_names_the_value_where_it_can_be_read_there(value: Any, sentence: str) -> None:
    assert problems.invalid_field("x", Code.INVALID, value, "y").detail == sentence


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (ObjectNotFound("x"), 404, "not_found"),
        (ObjectExists("x"), 409, "already_exists"),
        (VersionConflict("x"), 409, "conflict"),
        (InvalidArgument("after", "x", "a cursor"), 422, "invalid"),
        (LedgerUnavailable("x"), 503, "ledger_unavailable"),
        (StorageFull("x"), 503, "storage_full"),
        (NotAccepted("extension_used_up", "No."), 409, "extension_used_up"),
        (NotAdmitted("never_fits", "gpus", 9, "at most 4", "No node has 9."), 422, "never_fits"),
    ],
)
def test_what_other_layers_refuse_is_a_problem(error: Exception, status: int, code: str) -> None:
    problem = refusals.from_exception(error)
    assert problem is not None
    assert (problem.status, problem.code) == (status, code)


@pytest.mark.parametrize("error", [ValueError("x"), Expired("x"), KeyError("x")])
def test_what_nobody_foresaw_is_none_of_them(error: Exception) -> None:
    assert refusals.from_exception(error) is None


def test_a_broken_service_names_only_the_id_in_the_log() -> None:
    assert "abc123" in problems.Broken("abc123").detail


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, None),
        (True, True),
        (7, 7),
        (2**70, str(2**70)),
        (float("nan"), "nan"),
        (float("inf"), "inf"),
        ("x" * 500, "x" * 119 + "…"),
        ([1], "[1]"),
    ],
)
def test_refused_values_are_shown_short(value: object, shown: object) -> None:
    assert problems.shown(value) == shown
