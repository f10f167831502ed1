"""A researcher of `vision` learns nothing of `speech` but its use of the shared devices."""

import pytest

from carrel_scheduler.workloads.contract import GpuUseSeries
from carrel_schema.history import GpuUsePoint
from contract.api.service import ApiHarness

SECRETS = (b"speech-secret", b"speech-waiting-job", b"carl", b"uid-speech")
EVERYTHING = (
    "/whoami",
    "/workloads",
    "/workloads/vision/train-1",
    "/workloads/vision/train-1/history",
    "/projects",
    "/projects/vision",
    "/nodes",
    "/nodes/node-1",
    "/queue",
    "/usage?by=user",
    "/usage?by=workload",
    "/usage",
)


@pytest.mark.parametrize("path", EVERYTHING)
async def test_no_foreign_name_is_anywhere(harness: ApiHarness, path: str) -> None:
    reply = await harness.ask("GET", path)
    assert reply.status == 200
    assert [secret for secret in SECRETS if secret in reply.raw] == []
    assert b"without_names" not in reply.raw


@pytest.mark.parametrize(
    ("path", "secret"),
    [
        ("/workloads/vision/train-1", b"speech-secret-job"),
        ("/workloads/vision/train-1/history", b"speech-secret-user"),
        ("/nodes", b"speech-secret-job"),
        ("/queue", b"speech-waiting-job"),
        ("/usage?by=user", b"carl"),
    ],
)
async def test_an_admin_reads_the_names(harness: ApiHarness, path: str, secret: bytes) -> None:
    assert secret in (await harness.ask("GET", path, "root")).raw


async def test_devices_show_foreign_projects_and_nothing_more_of_them(harness: ApiHarness) -> None:
    node = (await harness.ask("GET", "/nodes/node-1")).body
    own, foreign = (device["holders"][0] for device in node["devices"])
    assert (own["name"], own["user"]) == ("vision-secret-job", "vision-secret-user")
    assert foreign == {
        "project": "speech",
        "uid": "",
        "name": "",
        "user": "",
        "kind": "",
        "gpu_milli": 1000,
        "borrowed": True,
        "state": "running",
        "since": 5.0,
        "color": 7,
        "utilization": None,
        "memory_used_mib": None,
    }
    assert own["color"] == 4
    assert (own["utilization"], own["memory_used_mib"]) == (0.25, 512)
    missing = await harness.ask("GET", "/nodes/node-9")
    assert (missing.status, missing.code) == (404, "not_found")


async def test_the_queue_keeps_its_order_with_nameless_foreign_entries(harness: ApiHarness) -> None:
    foreign, own = (await harness.ask("GET", "/queue")).body["items"]
    assert (foreign["position"], foreign["project"], foreign["name"]) == (1, "speech", "")
    assert foreign["reason"] == {
        "token": "WaitsForRoom",
        "cls": "not-now",
        "sentence": "It waits for room: what it asks for is not free in one place.",
        "help": "",
        "data": {},
    }
    assert (foreign["color"], own["color"]) == (7, 4)
    assert (own["position"], own["name"], own["resources"]["gpus"]) == (
        2,
        "vision-waiting-job",
        2.0,
    )
    assert own["reason"]["sentence"] == "Waiting for 2 GPUs: a member of `speech` holds them."


async def test_an_explicit_foreign_project_is_refused(harness: ApiHarness) -> None:
    for path in ("/workloads?project=speech", "/events?project=speech"):
        reply = await harness.ask("GET", path)
        assert (reply.status, reply.code) == (403, "not_a_member")


async def test_usage_is_of_visible_projects_and_a_sensible_span(harness: ApiHarness) -> None:
    reply = await harness.ask("GET", "/usage", "nobody")
    assert reply.body["items"] == []
    assert reply.body["until"] - reply.body["since"] == 7 * 86_400
    bad = await harness.ask("GET", "/usage?since=5&until=4")
    assert (bad.status, bad.fields) == (422, {"since": "too_big"})


async def test_usage_in_the_future_is_not_counted(harness: ApiHarness) -> None:
    now = harness.clock.now
    told = (await harness.ask("GET", f"/usage?since={now - 10}&until={now + 6 * 86_400}")).body
    assert told["until"] == now
    assert told["items"] == (await harness.ask("GET", f"/usage?since={now - 10}")).body["items"]
    bad = await harness.ask("GET", f"/usage?since={now + 5}&until={now + 10}")
    assert (bad.status, bad.fields) == (422, {"since": "too_big"})


async def test_history_and_curves_are_read(harness: ApiHarness) -> None:
    history = (await harness.ask("GET", "/workloads/vision/train-1/history")).body
    assert [row["to_phase"] for row in history["transitions"]] == ["pending", "starting"]
    assert [row["action"] for row in history["decisions"]] == ["bind"]
    curves = (await harness.ask("GET", "/workloads/vision/train-1/metrics?name=loss")).body
    assert curves == {"loss": [{"at": 2.0, "step": 1, "value": 0.5}]}
    none = await harness.ask("GET", "/workloads/vision/train-1/metrics?name=other")
    assert none.body == {}


async def test_gpu_use_is_of_visible_projects_only(harness: ApiHarness) -> None:
    points = (GpuUsePoint(at=1.0, gpus=0.5, memory_mib=512),)
    harness.live.gpu_use_of = {
        name: GpuUseSeries(project=name, points=points) for name in ("vision", "speech")
    }
    told = await harness.ask("GET", "/gpu-use?uid=vision&uid=speech&uid=gone")
    assert told.body["items"] == {"vision": [{"at": 1.0, "gpus": 0.5, "memory_mib": 512}]}
