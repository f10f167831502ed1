"""Forms: made from the table of options, checked before anything is sent."""

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from carrel.client import AsyncClient
from carrel.client.resources.endpoints import prefix_of
from carrel.errors import ApiError, BadSetting
from carrel.options import KINDS
from carrel.testing import FakeScheduler
from carrel.widgets import form_requests
from carrel.workspace import gateway, handlers


@pytest.fixture
def scheduler() -> Iterator[FakeScheduler]:
    with FakeScheduler(people={"ada": ["vision"]}) as fake:
        yield fake


@pytest.fixture
async def client(scheduler: FakeScheduler) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(scheduler.url, scheduler.token("ada")) as made:
        yield made


@pytest.mark.parametrize("kind", [kind.name for kind in KINDS])
def test_every_kind_has_a_form_with_help(kind: str) -> None:
    fields = form_requests.fields_of(kind)
    assert all(field["help"] and field["label"] for field in fields)
    assert any(field["first"] for field in fields)
    assert len({field["flag"] for field in fields}) == len(fields)


def test_parts_have_no_form() -> None:
    with pytest.raises(BadSetting, match="no form for 'trial'"):
        form_requests.fields_of("trial")


def test_each_mistake_stands_at_its_field() -> None:
    found = form_requests.mistakes("experiment", {"gpus": "many", "param": ["lr"], "memory": "4G"})
    assert set(found) == {"gpus", "param", "command"}
    assert found["gpus"].startswith("'many' is no number of GPUs")


def test_unknown_option_is_refused() -> None:
    with pytest.raises(BadSetting, match="--gpu"):
        form_requests.request("training", {"gqus": "1"}, project="vision")


def test_request_of_an_endpoint() -> None:
    given = {
        "command": "python serve.py",
        "min-replicas": "0",
        "max-replicas": "3",
        "port": ["8080"],
    }
    body = form_requests.request("inference", given, project="vision", folder="/home/ada")
    assert body["inference"] == {"min_replicas": 0, "max_replicas": 3}
    assert body["routes"] == [{"port": 8080}]
    assert (body["command"], body["working_dir"]) == (["python", "serve.py"], "/home/ada")


@pytest.mark.parametrize(("said", "meant"), [("yes", True), ("no", False)])
def test_what_may_be_said_both_ways_is_a_choice(said: str, meant: bool) -> None:
    given = {"command": "true", "preemptible": said}
    assert form_requests.request("training", given, project="vision")["preemptible"] is meant


def test_refusal_of_the_scheduler_stands_at_its_field() -> None:
    errors = [{"field": "experiment.completions", "expected": "at least 1"}, {"field": "uid"}]
    error = ApiError(422, "invalid", errors=errors)
    assert form_requests.refused("experiment", error) == {"completions": "It should be at least 1."}


async def test_dry_run_sends_nothing(scheduler: FakeScheduler, client: AsyncClient) -> None:
    given = {"command": "python train.py", "name": "x"}
    answer = await form_requests.submit(
        client, "training", given, project="vision", folder="", dry_run=True
    )
    assert answer["forecast"] == "It would start now."
    assert scheduler.workloads() == []


async def test_taken_name_is_said(scheduler: FakeScheduler, client: AsyncClient) -> None:
    scheduler.submit("vision", "x")
    given = {"command": "true", "name": "x"}
    answer = await form_requests.submit(
        client, "training", given, project="vision", folder="", dry_run=False
    )
    assert answer["workload"] is None
    assert answer["errors"] or "already" in answer["message"]


async def test_notebook_goes_along_without_outputs(
    scheduler: FakeScheduler, client: AsyncClient, tmp_path: Path
) -> None:
    cell = {"cell_type": "code", "source": "1", "outputs": [{"secret": 1}], "metadata": {}}
    text = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    (tmp_path / "a.ipynb").write_text(json.dumps(text))
    given = {"notebook": "a.ipynb", "param": ["lr=0.5"], "name": "night"}
    answer = await form_requests.submit(
        client, "notebook", given, project="vision", folder=str(tmp_path), dry_run=False
    )
    assert answer["workload"] == {"project": "vision", "name": "night", "kind": "notebook"}
    assert scheduler.workload("vision", "night")["spec"]["notebook"]["parameters"] == {"lr": 0.5}
    missing = await form_requests.submit(
        client, "notebook", {"notebook": "b.ipynb"}, project="vision", folder=str(tmp_path),
        dry_run=True,
    )  # fmt: skip
    assert "There is no notebook" in missing["message"]


async def test_one_board_for_one_job(scheduler: FakeScheduler, client: AsyncClient) -> None:
    first = await handlers.find_or_start_tensorboard(client, "vision", "train-7")
    again = await handlers.find_or_start_tensorboard(client, "vision", "train-7")
    other = await handlers.find_or_start_tensorboard(client, "vision", "train-8")
    assert first.name == again.name != other.name
    prefix = prefix_of("http://127.0.0.1:8000/base/services/carrel")
    assert handlers.tensorboard_view(first, prefix)["url"] == ""
    scheduler.run("vision", first.name)
    shown = handlers.tensorboard_view(
        await handlers.find_tensorboard(client, "vision", "train-7"), prefix
    )
    assert shown["url"] == f"/base/services/gateway/vision/{first.name}/"
    assert handlers.tensorboard_view(None, prefix)["over"]


@pytest.mark.parametrize(
    "asked",
    [{"method": "TRACE"}, {"method": "GET", "path": "/../x"}, {"method": "GET", "path": "/%2E%2e/"},
     {"method": "POST", "body": {}}, {"method": "POST", "body": "x" * 2**21}, None],
)  # fmt: skip
def test_requests_that_cannot_be_tried(asked: object) -> None:
    with pytest.raises(BadSetting):
        gateway.EndpointRequest.of(asked)


def test_request_to_try() -> None:
    request = gateway.EndpointRequest.of({"method": "POST", "path": "/predict?n=1", "body": "{}"})
    assert request == gateway.EndpointRequest("POST", "predict?n=1", "{}")
