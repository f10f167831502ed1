"""What jobs, workspaces and the spawner tell."""

from typing import Any

import pytest

from carrel_scheduler.workloads.contract import NotAccepted
from contract.api.service import ApiHarness

DESK: dict[str, Any] = {
    "name": "ada-default",
    "project": "vision",
    "kind": "workspace",
    "user": "ada",
    "server_name": "",
    "hold_for_claim": True,
}


async def test_a_job_reports_with_its_own_token_and_only_for_itself(harness: ApiHarness) -> None:
    uid = "uid-vision-train-1"
    token = harness.tokens.issue(uid)
    path = "/workloads/vision/train-1/reports"
    body = {"step": 120, "metrics": {"loss": 0.31}, "done": 120, "total": 1000}
    reply = await harness.ask("POST", path, token, json=body)
    assert (reply.status, reply.raw) == (204, b"")
    ((reported, report),) = harness.live.reports
    assert (reported, report.step, report.at) == (uid, 120, harness.clock.now)
    assert dict(report.metrics) == {"loss": 0.31}
    for other in ("vision/desk", "speech/train-1", "vision/missing"):
        refused = await harness.ask("POST", f"/workloads/{other}/reports", token, json=body)
        assert (refused.status, refused.code) == (403, "wrong_task_token")
    assert (await harness.ask("POST", "/workloads/vision/train-1/reports", json=body)).status == 204
    lost = harness.tokens.issue("uid-of-a-removed-one")
    assert (await harness.ask("POST", path, lost, json=body)).status in (404, 405)


async def test_a_tasks_token_ends_with_its_task(harness: ApiHarness) -> None:
    token = harness.tokens.issue("uid-vision-train-1")
    path, body = "/workloads/vision/train-1/reports", {"step": 1}
    ended = harness.clock.now
    await harness.set_status("vision", "train-1", phase="succeeded", ended_at=ended)
    assert (await harness.ask("POST", path, token, json=body)).status == 204
    harness.clock.now = ended + 61
    late = await harness.ask("POST", path, token, json=body)
    assert (late.status, late.code) == (403, "task_token_expired")
    await harness.set_status("vision", "train-1", phase="pending", ended_at=None)
    waits = await harness.ask("POST", path, token, json=body)
    assert (waits.status, waits.code) == (403, "task_token_expired")


@pytest.mark.parametrize(
    ("who", "asked_by"), [("ada", "ada"), ("root", "root"), ("spawner", "ada")]
)
@pytest.mark.parametrize("way", ["suspend", "delete"])
async def test_who_asked_for_an_end_is_recorded(
    harness: ApiHarness, who: str, asked_by: str, way: str
) -> None:
    path = "/workloads/vision/desk"
    asked = ("POST", f"{path}/suspend") if way == "suspend" else ("DELETE", path)
    assert (await harness.ask(*asked, who)).status == 202
    assert (await harness.workload("vision", "desk")).spec.asked_by == asked_by


@pytest.mark.parametrize(
    ("body", "field", "code"),
    [
        ({"step": -1}, "step", "too_small"),
        ({"metrics": {"loss": "low"}}, "metrics.loss", "wrong_type"),
        ({"metrics": {"": 1}}, "metrics.", "too_short"),
        ({"metrics": {"x" * 101: 1}}, f"metrics.{'x' * 101}", "too_long"),
        ({"metrics": {"a\nb": 1}}, "metrics.a\nb", "wrong_form"),
        ({"metrics": {f"m{n}": 1 for n in range(201)}}, "metrics", "too_long"),
        ({"lost": 1}, "lost", "unknown_field"),
    ],
)
async def test_wrong_reports_are_refused(
    harness: ApiHarness, body: dict[str, Any], field: str, code: str
) -> None:
    reply = await harness.ask("POST", "/workloads/vision/train-1/reports", json=body)
    assert (reply.status, reply.fields) == (422, {field: code})
    assert harness.live.reports == []


async def test_the_spawner_makes_and_claims_workspaces_for_members(harness: ApiHarness) -> None:
    made = await harness.ask("POST", "/workloads", "spawner", json=DESK)
    assert made.status == 201, made.body
    assert (made.body["created_by"], made.body["spec"]["user"]) == ("spawner", "ada")
    assert (made.body["spec"]["priority"], made.body["spec"]["preemptible"]) == ("build", False)
    path = "/workloads/vision/ada-default"
    claim = {"command": ["jupyterhub-singleuser"], "port": 4000, "secret_environment": {"T": "x"}}
    claimed = await harness.ask("POST", f"{path}/claim", "spawner", json=claim)
    assert claimed.status == 200
    assert harness.live.claims[0]["port"] == 4000
    # It is ada's from now on, and the spawner may still end it, but not her trainings.
    assert (await harness.ask("POST", f"{path}/suspend", "ada")).status == 202
    assert (await harness.ask("DELETE", path, "spawner")).status == 202
    assert (await harness.ask("DELETE", "/workloads/vision/train-1", "spawner")).status == 403
    harness.live.not_accepted = NotAccepted("holds_no_place", "It does not hold a place.")
    late = await harness.ask("POST", f"{path}/claim", "spawner", json=claim)
    assert (late.status, late.code) == (409, "holds_no_place")


async def test_a_workspace_that_the_hub_runs_itself_has_no_command(harness: ApiHarness) -> None:
    body = {key: one for key, one in DESK.items() if key != "hold_for_claim"} | {"external": True}
    made = await harness.ask("POST", "/workloads", "spawner", json=body | {"name": "pod"})
    assert made.status == 201, made.body
    assert made.body["spec"]["external"]
    claim = {"external": True, "port": 8888}
    taken = await harness.ask("POST", "/workloads/vision/pod/claim", "spawner", json=claim)
    assert taken.status == 200
    assert harness.live.claims[-1]["external"]
    both = claim | {"command": ["jupyterhub-singleuser"]}
    for refused, code in ((both, "external_workspace"), ({"port": 8888}, "command_required")):
        reply = await harness.ask("POST", "/workloads/vision/pod/claim", "spawner", json=refused)
        assert (reply.status, list(reply.fields.values())) == (422, [code])
    for wrong in ({"kind": "training"}, {"command": ["true"]}):
        reply = await harness.ask(
            "POST", "/workloads", "spawner", json=body | {"name": "no"} | wrong
        )
        assert (reply.status, list(reply.fields.values())) == (422, ["external_workspace"])
    by_others = await harness.ask("POST", "/workloads", "ada", json={**body, "name": "mine"})
    assert (by_others.status, by_others.code) == (403, "spawner_only")


async def test_the_spawner_cannot_put_people_into_foreign_projects(harness: ApiHarness) -> None:
    foreign = await harness.ask("POST", "/workloads", "spawner", json=DESK | {"user": "carl"})
    assert (foreign.status, foreign.code) == (403, "not_a_member")
    nameless = {key: value for key, value in DESK.items() if key != "user"}
    reply = await harness.ask("POST", "/workloads", "spawner", json=nameless)
    assert (reply.status, reply.fields) == (422, {"user": "missing_field"})
    harness.membership.down = True
    assert (await harness.ask("POST", "/workloads", "spawner", json=DESK)).status == 503


async def test_services_own_no_work(harness: ApiHarness) -> None:
    body = {"name": "x", "project": "vision", "command": ["x"]}
    reply = await harness.ask("POST", "/workloads", "bot", json=body)
    assert (reply.status, reply.code) == (403, "user_expected")
    reply = await harness.ask("POST", "/workspaces/activity", "bot", json={})
    assert (reply.status, reply.code) == (403, "user_expected")


async def test_a_workspace_gives_signs_of_life_and_hears_of_its_limits(harness: ApiHarness) -> None:
    body = {"server_name": "", "busy_since": 5.0, "kernels": 2}
    reply = await harness.ask("POST", "/workspaces/activity", json=body)
    assert (reply.status, reply.body["stops_because"]) == (200, "Idle")
    ((user, server, sign),) = harness.live.activities
    assert (user, server, sign.at, sign.kernels) == ("ada", "", harness.clock.now, 2)
    gone = await harness.ask("POST", "/workspaces/activity", json={"server_name": "gone"})
    assert (gone.status, gone.code) == (404, "not_found")


async def test_keeping_a_workspace_longer(harness: ApiHarness) -> None:
    reply = await harness.ask("POST", "/workloads/vision/desk/extend")
    assert (reply.status, reply.body["extended_until"]) == (200, 5000.0)
    training = await harness.ask("POST", "/workloads/vision/train-1/extend")
    assert (training.status, training.code) == (409, "not_a_workspace")
    harness.live.not_accepted = NotAccepted("extensions_used_up", "It was extended already.")
    late = await harness.ask("POST", "/workloads/vision/desk/extend")
    assert (late.status, late.code) == (409, "extensions_used_up")
