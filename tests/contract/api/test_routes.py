"""What the gateway hears, tells and may not; and changing an endpoint."""

from typing import Any

import pytest

from carrel_schema.objects import WorkloadStatus
from carrel_schema.sections import InferenceSpec, Route
from contract.api.service import ROOT, ApiHarness, Reply

DIGITS = "/workloads/vision/digits"


async def served(harness: ApiHarness) -> None:
    """An endpoint, a replica of it, and their trainings beside."""
    await harness.add("vision", "digits", "ada", kind="inference", routes=[Route()],
                   inference=InferenceSpec(), status=WorkloadStatus(phase="running"))  # fmt: skip
    await harness.add("vision", "digits-r1", "ada", kind="replica", owner="uid-vision-digits",
                   part=1, routes=[Route()], status=WorkloadStatus(phase="running"))  # fmt: skip


async def test_the_gateway_hears_of_what_has_routes_and_when_it_has_heard_all(
    harness: ApiHarness,
) -> None:
    await served(harness)
    headers = {"Authorization": "token gateway-token"}
    async with harness.session.get(
        f"{harness.url}{ROOT}/events?routed=true", headers=headers
    ) as answer:
        text = b""
        async for piece in answer.content.iter_any():
            text += piece
            if b"event: told" in text:
                break
    assert text.count(b"event: workload") == 1
    assert b'"name":"digits"' in text
    assert b"train-1" not in text


async def test_what_it_tells_is_added_up_and_forgotten_when_it_is_silent(
    harness: ApiHarness,
) -> None:
    told = {"uid": "uid-1", "in_flight": 3, "rate": 2.5, "targets": {"r1": 3}}
    body = {"gateway": "g1", "everything": True, "items": [told]}
    assert (await harness.ask("POST", "/gateway/loads", "gateway-token", json=body)).status == 204
    assert (await harness.ask("POST", "/gateway/loads", "ada", json=body)).status == 403
    wrong = {"gateway": "g1", "items": [{"uid": "u", "in_flight": -1}]}
    reply = await harness.ask("POST", "/gateway/loads", "gateway-token", json=wrong)
    assert reply.fields == {"items.0.in_flight": "too_small"}


async def test_the_gateway_learns_whose_task_comes_while_it_is_at_work(harness: ApiHarness) -> None:
    async def asked(token: str) -> Reply:
        return await harness.ask("POST", "/gateway/tasks", "gateway-token", json={"token": token})

    told = await asked(harness.tokens.issue("uid-vision-train-1"))
    assert (told.status, told.body) == (
        200,
        {"user": "ada", "project": "vision", "name": "train-1"},
    )
    assert (await asked(harness.tokens.issue("uid-vision-train-1") + "x")).status == 404
    assert (await asked(harness.tokens.issue("uid-gone"))).status == 404


@pytest.mark.parametrize(
    ("patch", "revision"),
    [
        ({"environment": {"A": "1"}}, 2),
        ({"gpus": 0.5, "memory_bytes": 2**31}, 2),
        ({"inference": {"readiness_path": "/ready"}}, 2),
        ({"inference": {"max_replicas": 3}}, 1),
        ({}, 1),
    ],
)
async def test_what_replicas_run_has_a_revision(
    harness: ApiHarness, patch: dict[str, Any], revision: int
) -> None:
    await served(harness)
    reply = await harness.ask("PATCH", DIGITS, json=patch)
    assert reply.status == 202, reply.body
    assert reply.body["spec"]["inference"]["revision"] == revision
    again = await harness.ask("PATCH", DIGITS, json=patch)
    assert again.body["spec"]["inference"]["revision"] == revision


async def test_a_changed_share_is_another_instance_where_gpus_are_divided(
    harness: ApiHarness,
) -> None:
    harness.live.divided_gpus = "H100-80GB"
    await served(harness)
    revision = 1
    for gpus, whole, profile in ((0.5, 0, "4g.40gb"), (0.25, 0, "2g.20gb"), (1, 1, "")):
        revision += 1
        for _ in range(2):  # said again, it is no change
            reply = await harness.ask("PATCH", DIGITS, json={"gpus": gpus})
            assert reply.status == 202, reply.body
            spec = reply.body["spec"]
            assert (spec.get("gpus", 0), spec.get("mig_profile", "")) == (whole, profile)
            assert spec["inference"]["revision"] == revision


async def test_the_gpus_that_a_share_is_taken_of_change_with_it(harness: ApiHarness) -> None:
    await served(harness)
    for patch, share, devices in (
        ({"gpus": 0.25, "gpu_devices": 2}, 0.25, 2),
        ({"gpu_devices": 4}, 0.25, 4),
        ({"gpus": 0.5}, 0.5, 1),
    ):
        reply = await harness.ask("PATCH", DIGITS, json=patch)
        assert reply.status == 202, reply.body
        spec = reply.body["spec"]
        assert (spec["gpus"], spec.get("gpu_devices", 1)) == (share, devices)
    reply = await harness.ask("PATCH", DIGITS, json={"gpus": 1, "gpu_devices": 2})
    assert (reply.status, reply.code) == (422, "bad_gpu_devices")


async def test_what_cannot_be_changed(harness: ApiHarness) -> None:
    await served(harness)
    for path, patch, who, status, code in (
        (DIGITS, {"inference": {"min_replicas": 2}}, "ada", 422, "bad_range"),
        (DIGITS, {"image": "x"}, "ada", 422, "unknown_field"),
        (DIGITS, {"gpus": 0}, "bea", 403, "not_the_owner"),
        ("/workloads/vision/train-1", {"gpus": 0}, "ada", 409, "cannot_change"),
    ):
        reply = await harness.ask("PATCH", path, who, json=patch)
        assert (reply.status, reply.code) == (status, code), reply.body
    await harness.ask("DELETE", DIGITS)
    reply = await harness.ask("PATCH", DIGITS, json={"gpus": 0.5})
    assert (reply.status, reply.code) == (409, "being_deleted")


async def test_a_route_is_opened_by_its_owner_only(harness: ApiHarness) -> None:
    await served(harness)
    path = f"{DIGITS}/share"
    reply = await harness.ask("POST", path, json={"access": "everyone"})
    assert (reply.status, reply.body["spec"]["routes"][0]["access"]) == (202, "everyone")
    for body, who, status, code in (
        ({"access": "user", "route": "chat"}, "ada", 409, "no_such_route"),
        ({"access": "world"}, "ada", 422, "unknown_value"),
        ({"access": "user"}, "bea", 403, "not_the_owner"),
    ):
        reply = await harness.ask("POST", path, who, json=body)
        assert (reply.status, reply.code) == (status, code), reply.body
    reply = await harness.ask("POST", "/workloads/vision/train-1/share", json={"access": "user"})
    assert (reply.status, reply.code) == (409, "no_such_route")
    assert "--port" in reply.body["detail"]
