"""What the package promises: both clients alike, errors as sentences, models that forgive."""

import inspect
from collections.abc import Generator
from typing import Any, assert_type

import msgspec
import pytest

import carrel
from carrel import errors, models
from carrel.client import AsyncClient, Client
from carrel.client.transport import pairs, problem
from carrel_schema.reading import read


def public(kind: type) -> dict[str, Any]:
    return {
        name: member
        for name, member in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
    }


def test_the_synchronous_client_has_every_method_with_the_same_parameters() -> None:
    ours, theirs = public(Client), public(AsyncClient)
    assert set(ours) == set(theirs)
    for name, method in theirs.items():
        assert inspect.signature(ours[name]).parameters == inspect.signature(method).parameters, (
            name
        )


def test_each_synchronous_method_has_a_docstring_and_its_type(client: Client) -> None:
    for name, method in public(AsyncClient).items():
        ours = public(Client)[name]
        assert ours.__doc__, name
        assert not inspect.iscoroutinefunction(ours), name
        if name not in ("map", "endpoint", "close"):
            assert ours.__doc__ == method.__doc__, name
    job = client.create_workload({"project": "vision", "name": "x"})
    assert_type(job, models.Workload)
    assert_type(client.create_workload({"project": "vision"}, dry_run=True), models.Forecast)
    assert_type(client.get_workload("vision", name="x"), models.Workload)
    assert_type(client.logs("vision", "x", tail=1), Generator[str, None, None])
    assert_type(client.endpoint("vision", "x").stream(1), Generator[Any, None, None])


def test_all_exports_exist() -> None:
    for name in set(carrel.__all__) - {"load_ipython_extension", "unload_ipython_extension"}:
        assert getattr(carrel, name) is not None
    assert set(carrel.__all__) <= set(dir(carrel))
    assert all(hasattr(models, name) for name in models.__all__)
    with pytest.raises(AttributeError, match="nothing_like_it"):
        carrel.nothing_like_it  # noqa: B018 - the access is the test


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (errors.ApiError(404, detail="There is no job `x`."), "There is no job `x`."),
        (errors.ApiError(409, title="Conflict"), "Conflict"),
        (errors.ApiError(500), "The server refused the request (500)."),
        (
            errors.ApiError(
                422,
                detail="Too many GPUs.",
                errors=[{"field": "gpus", "value": 9, "expected": "at most 4"}],
            ),
            "Too many GPUs: gpus should be at most 4.",
        ),
        (
            errors.ApiError(
                422, detail="Too many GPUs", errors=[{"field": "gpus", "expected": "Ask for less."}]
            ),
            "Too many GPUs. Ask for less.",
        ),
        (
            errors.ApiError(
                422, detail="gpus: at most 4.", errors=[{"field": "gpus", "expected": "at most 4"}]
            ),
            "gpus: at most 4.",
        ),
    ],
)
def test_errors_are_sentences(error: errors.ApiError, sentence: str) -> None:
    assert str(error) == sentence


def test_a_problem_that_is_none_is_still_an_error() -> None:
    assert problem(500, b"<html>").status == 500
    known = problem(422, b'{"code":"bad_name","detail":"d","errors":[{"field":"name"}]}')
    assert (known.code, known.errors) == ("bad_name", ({"field": "name"},))


def test_words_of_a_newer_server_are_taken_as_they_are() -> None:
    job = read(
        b'{"name":"x","project":"p","new":1,"spec":{"kind":"experiment","gpus":1},'
        b'"status":{"phase":"hibernating","novel":{},"tasks":[{"index":3,"place":"lent"}]}}',
        models.Workload,
    )
    task = models.Task(index=3, attempt=0, node="")
    assert job.status.tasks == [msgspec.structs.replace(task, place="lent")]
    assert (str(job.status.phase), job.spec.kind, job.spec.gpus) == ("hibernating", "experiment", 1)
    assert not job.at_rest


def test_query_parameters() -> None:
    parameters: Any = {"a": None, "b": True, "c": False, "d": 1.5, "e": ["x", "y"], "f": "z"}
    assert pairs(parameters) == [
        ("b", "true"),
        ("c", "false"),
        ("d", "1.5"),
        ("e", "x"),
        ("e", "y"),
        ("f", "z"),
    ]
