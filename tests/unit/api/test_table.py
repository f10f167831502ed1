"""The table of operations: complete, with a rule for each, and a document that is valid."""

import dataclasses
from typing import Any

import msgspec
import pytest
from openapi_spec_validator import validate

from carrel_scheduler.api import openapi
from carrel_scheduler.api.http.app import check_operation
from carrel_scheduler.api.principals.access import RULES, AdmittedCallers
from carrel_scheduler.api.table import OPERATIONS, TERMINAL


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return dict(msgspec.json.decode(openapi.document(OPERATIONS, "/services/carrel")))


def test_the_document_is_valid_openapi(document: dict[str, Any]) -> None:
    validate(document)
    assert document["openapi"].startswith("3.1")


def test_each_operation_says_who_may_call_it(document: dict[str, Any]) -> None:
    found = [
        one for path in document["paths"].values() for one in path.values() if isinstance(one, dict)
    ]
    assert len(found) == len(OPERATIONS)
    assert {one["x-carrel-access"] for one in found} == {access.value for access in RULES}
    assert len({one["operationId"] for one in found}) == len(found)


def test_every_access_has_a_rule() -> None:
    assert set(RULES) == set(AdmittedCallers)
    assert all(rule.scopes or rule.node_token for rule in RULES.values())


@pytest.mark.parametrize(
    "change",
    [
        {"access": "everybody"},
        {"path": "/workloads/{name}"},
        {"websocket": False},
        {"summary": ""},
    ],
)
def test_an_operation_that_is_not_whole_is_refused(change: dict[str, Any]) -> None:
    check_operation(TERMINAL)
    with pytest.raises(ValueError, match="open_terminal"):
        check_operation(dataclasses.replace(TERMINAL, **change))
