"""Inputs that are to end the scheduler, or to make it slow for everybody: it stays what it was."""

import itertools
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import requests

from attacks.person import Person
from e2e.stack import Stack, until

FLOOD = """
import json, urllib.error, urllib.request
from carrel.job.task import present
token, url = present().token, present().reports_url
codes = []
for report in range(60):
    body = {"metrics": {f"{report}-{n}-" + "x" * 90: 1.0 for n in range(200)}}
    asked = urllib.request.Request(
        url, json.dumps(body).encode(), {"Authorization": f"Bearer {token}",
                                         "Content-Type": "application/json"})
    try:
        codes.append(urllib.request.urlopen(asked).status)
    except urllib.error.HTTPError as error:
        codes.append(error.code)
        last = error.read().decode()
print(sorted(set(codes)), codes.count(204), last)
"""
WEIRD: tuple[Any, ...] = (
    None,
    [],
    "text",
    1e308,
    -(2**63) - 1,
    2**200,
    {"metrics": {"loss": 1e999}},
    {"at": 1e308, "step": 2**63},
    {"items": [{"uid": "\ud800", "requests": -1}] * 3},
    {"quota": {"gpus": -1}, "name": "a" * 5000},
    {"kind": "training", "name": "w", "project": "vision", "command": ["id"], "gpus": 1e300},
    {"kind": "training", "name": "w", "project": "vision", "command": ["id"], "tasks": 2**70},
    {"kind": "training", "name": "w", "project": "vision", "command": ["\0"]},
)


@pytest.fixture(autouse=True)
def the_scheduler_lives_on(stack: Stack, ada: Person) -> Iterator[None]:
    """The same process before and after, nothing set aside, and a job still runs."""
    before = stack.scheduler_pid()
    assert before
    yield
    assert stack.scheduler_pid() == before
    told = requests.get(f"{stack.url}/services/carrel/ready", timeout=30).json()
    assert told == {"ready": True}
    phase, printed = ada.run(["echo", "well"])
    assert (phase, printed.strip()) == ("succeeded", "well")


def test_a_job_cannot_make_its_object_large_by_names_of_metrics(ada: Person) -> None:
    made = ada.submit(["python", "-c", FLOOD])
    ended = ada.ended(made)
    printed = ada.logs(ended)
    assert ended.status.phase == "succeeded", printed
    assert printed.startswith("[204, 422] 1 "), printed
    assert '"field":"metrics"' in printed
    shown = ada.api("GET", f"/workloads/vision/{made.name}")
    assert len(shown.content) < 50_000
    assert len(shown.json()["status"]["metrics"]) == 200


def test_no_body_of_any_operation_ends_it(admin: Person, ada: Person) -> None:
    """Every operation that takes a body, with bodies that mean nothing, also as an admin."""
    document = admin.api("GET", "/openapi.json").json()
    asked = 0
    for path, methods in document["paths"].items():
        for method, what in methods.items():
            if "requestBody" not in what:
                continue
            where = re.sub(r"{\w+}", "weird", path.replace("{project}", "vision"))
            for who, body in itertools.product((ada, admin), WEIRD):
                text = json.dumps(body)
                headers = {"Content-Type": "application/json"}
                answer = who.api(
                    method.upper(), where.removeprefix("/api/v1"), data=text, headers=headers
                )
                assert answer.status_code < 500, (method, path, text, answer.text)
                asked += 1
    assert asked > 200


def test_a_project_with_work_is_not_removed_under_it(admin: Person, ada: Person) -> None:
    made = ada.submit(["sleep", "600"])
    ada.running(made)
    refused = admin.api("DELETE", "/projects/vision")
    assert (refused.status_code, refused.json()["code"]) == (409, "project_in_use")
    assert ada.phase(made) == "running"
    ada.delete(made)


def test_a_machine_that_comes_back_with_fewer_gpus_starts(
    own_product: Callable[..., Stack],
) -> None:
    """Eight GPUs in use, two after the restart: what was on the others runs again on those."""
    stack = own_product("--gpus", "8")
    with Person.of(stack, "ada", "vision") as ada:
        jobs = [ada.submit(["sleep", "600"], gpus=1) for _ in range(8)]
        for job in jobs:
            ada.running(job)
    stack.stop()
    stack.arguments = (*stack.arguments[:-1], "2")
    stack.start()
    with Person.of(stack, "ada", "vision") as ada:
        phases = until(
            lambda: _settled(ada, jobs), seconds=120, every=0.5, why="two jobs run, six wait"
        )
        assert sorted(phases) == ["pending"] * 6 + ["running"] * 2
        shown = ada.api("GET", "/nodes").json()["items"][0]["devices"]
        assert [device["broken"] for device in shown] == [False] * 2 + [True] * 6
        assert "Lost" in shown[7]["message"]
        running = next(job for job in jobs if ada.phase(job) == "running")
        ada.delete(running)
        until(
            lambda: [ada.phase(job) for job in jobs if job is not running].count("running") == 2,
            seconds=120,
            why="another of them runs again",
        )
    with Person.of(stack, "admin", "vision") as admin:
        assert admin.api("PATCH", "/projects/speech", json={"description": "x"}).status_code == 200


def _settled(ada: Person, jobs: list[Any]) -> list[str]:
    phases = [ada.phase(job) for job in jobs]
    return phases if phases.count("running") == 2 and phases.count("pending") == 6 else []
