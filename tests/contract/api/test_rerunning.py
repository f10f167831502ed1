"""Work is run again with its files and secrets, by its user, as it was or with changes."""

from typing import Any

import pytest

from contract.api.service import ApiHarness

PARTS: dict[str, dict[str, Any]] = {
    "training": {
        "command": ["python", "train.py"],
        "gpus": 1,
        "files": {"train.py": "print(1)"},
        "secret_environment": {"API_KEY": "very-secret"},
        "volumes": [{"source": "/data", "destination": "data", "read_only": True}],
        "environment": {"A": "1"},
        "restart_policy": "never",
        "labels": {"team": "a"},
        "retries": {"memory": 2, "lost": 0},
    },
    "distributed": {"command": ["python", "x.py"], "tasks": 2, "rendezvous": {"launcher": "each"}},
    "experiment": {
        "command": ["python", "x.py"],
        "experiment": {"parameters": {"lr": {"type": "float", "low": 0.1, "high": 1.0}}},
    },
    "inference": {"command": ["python", "serve.py"], "inference": {"max_replicas": 2}},
    "notebook": {"notebook": {"path": "/home/ada/report.ipynb", "parameters": {"n": 3}}},
    "schedule": {
        "schedule": {"cron": "0 3 * * *"},
        "notebook": {"path": "/home/ada/report.ipynb"},
    },
}


@pytest.mark.parametrize("kind", PARTS)
async def test_each_kind_is_run_again_as_it_was(harness: ApiHarness, kind: str) -> None:
    body = {"name": "work-7", "project": "vision", "kind": kind, **PARTS[kind]}
    assert (await harness.ask("POST", "/workloads", json=body)).status == 201
    reply = await harness.ask("POST", "/workloads/vision/work-7/rerun", json={})
    assert reply.status == 201, reply.body
    assert reply.body["name"] == "work-1"
    assert b"very-secret" not in reply.raw
    before = await harness.workload("vision", "work-7")
    after = await harness.workload("vision", "work-1")
    assert after.spec == before.spec
    assert after.meta.labels == before.meta.labels
    secrets = [await harness.ledger.secrets(one.meta.uid) for one in (before, after)]
    assert secrets[0] == secrets[1] == PARTS[kind].get("secret_environment", {})


async def test_changes_replace_fields_and_are_checked(harness: ApiHarness) -> None:
    body = {"name": "work", "project": "vision", **PARTS["training"]}
    await harness.ask("POST", "/workloads", json=body)
    path = "/workloads/vision/work/rerun"
    changes = {"name": "other", "gpus": 2, "environment": None}
    reply = await harness.ask("POST", path, json={"changes": changes})
    assert (reply.status, reply.body["name"], reply.body["spec"]["gpus"]) == (201, "other", 2.0)
    assert reply.body["spec"]["environment"] == {}
    assert (await harness.workload("vision", "other")).spec.files == {"train.py": "print(1)"}
    wrong = await harness.ask("POST", path, json={"changes": {"gpus": -1}})
    assert (wrong.status, list(wrong.fields)) == (422, ["gpus"])
    moved = await harness.ask("POST", path, json={"changes": {"project": "speech"}})
    assert (moved.status, list(moved.fields)) == (422, ["project"])
    tried = await harness.ask("POST", f"{path}?dry_run=true", json={})
    assert (tried.status, tried.body["workload"]["name"]) == (200, "work-1")


async def test_a_section_is_changed_field_by_field(harness: ApiHarness) -> None:
    body = {"name": "work", "project": "vision", "kind": "experiment", **PARTS["experiment"]}
    await harness.ask("POST", "/workloads", json=body)
    changes = {"experiment": {"completions": 3}}
    reply = await harness.ask("POST", "/workloads/vision/work/rerun", json={"changes": changes})
    assert reply.body["spec"]["experiment"]["completions"] == 3
    assert list(reply.body["spec"]["experiment"]["parameters"]) == ["lr"]


@pytest.mark.parametrize(
    ("asked", "changes", "backoff_limit", "application"),
    [
        ({}, {}, 6, None),
        ({}, {"backoff_limit": 3}, 3, 3),
        ({"backoff_limit": 6}, {}, 6, 6),
        ({"backoff_limit": 4}, {}, 4, 4),
        ({"backoff_limit": 4}, {"backoff_limit": 2}, 2, 2),
        ({"backoff_limit": 4}, {"backoff_limit": None}, 6, None),
        ({"backoff_limit": 4}, {"retries": {"application": 1}}, 4, 1),
        ({"backoff_limit": 0}, {}, 0, None),
        ({"retries": {"application": 2}}, {}, 6, 2),
        ({"retries": {"application": 2}}, {"retries": {"application": None}}, 6, None),
    ],
)
async def test_failures_are_followed_by_as_many_attempts(
    harness: ApiHarness,
    asked: dict[str, Any],
    changes: dict[str, Any],
    backoff_limit: int,
    application: int | None,
) -> None:
    body = {"name": "work", "project": "vision", "command": ["true"], **asked}
    assert (await harness.ask("POST", "/workloads", json=body)).status == 201
    reply = await harness.ask("POST", "/workloads/vision/work/rerun", json={"changes": changes})
    assert reply.status == 201, reply.body
    spec = (await harness.workload("vision", "work-1")).spec
    found = None if spec.retries is None else spec.retries.application
    assert (spec.backoff_limit, found) == (backoff_limit, application)


async def test_what_no_request_has_is_refused_as_a_change(harness: ApiHarness) -> None:
    body = {"name": "work", "project": "vision", "command": ["true"]}
    assert (await harness.ask("POST", "/workloads", json=body)).status == 201
    changes = {"resources": {"gpu_milli": 1}}
    reply = await harness.ask("POST", "/workloads/vision/work/rerun", json={"changes": changes})
    assert (reply.status, list(reply.fields)) == (422, ["resources"])


async def test_only_its_user_runs_it_again(harness: ApiHarness) -> None:
    body = {"name": "work", "project": "vision", **PARTS["training"]}
    await harness.ask("POST", "/workloads", json=body)
    for other in ("bea", "root"):
        reply = await harness.ask("POST", "/workloads/vision/work/rerun", other, json={})
        assert (reply.status, reply.code) == (403, "not_the_owner")
    workspace_of_hers = {
        "name": "desk",
        "project": "vision",
        "kind": "workspace",
        "command": ["true"],
    }
    await harness.ask("POST", "/workloads", json=workspace_of_hers)
    reply = await harness.ask("POST", "/workloads/vision/desk/rerun", json={})
    assert (reply.status, reply.code) == (409, "cannot_rerun")
