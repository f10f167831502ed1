"""The model catalogue over HTTP: entries are templates that name a model."""

from typing import Any

from contract.api.service import Desk

ENTRY: dict[str, Any] = {
    "kinds": ["inference"],
    "description": "Ours.",
    "model": {"source": "vision/reader", "gpu_memory_gib": 24},
    "fields": {"command": ["python", "serve.py"], "gpus": 1.0},
}


async def catalogue(desk: Desk, who: str) -> dict[str, dict[str, Any]]:
    found = await desk.ask("GET", "/catalogue", who)
    assert found.status == 200
    return {one["name"]: one for one in found.body["items"]}


async def test_entries_are_seen_by_who_may_use_their_templates(desk: Desk) -> None:
    made = await desk.ask("PUT", "/templates/reader?scope=project/vision", "ada", json=ENTRY)
    assert made.status == 200
    assert made.body["model"]["source"] == "vision/reader"
    entry = (await catalogue(desk, "ada"))["reader"]
    assert (entry["scope"], entry["gpus"], entry["gpu_memory_gib"]) == ("project/vision", 1.0, 24)
    assert "reader" not in await catalogue(desk, "carl")
    assert (await catalogue(desk, "carl"))["chat-example"]["runs_here"] is True


async def test_one_that_comes_along_is_served_by_its_name(desk: Desk) -> None:
    asked = {"project": "vision", "name": "chat", "kind": "inference", "template": "chat-example"}
    made = await desk.ask("POST", "/workloads", "ada", json=asked | {"environment": {"A": "1"}})
    assert made.status == 201, made.body
    spec = made.body["spec"]
    assert (spec["kind"], spec["command"][-1]) == ("inference", "carrel.job.chat_example")
    assert (spec["environment"], spec["cpu_millicores"]) == ({"A": "1"}, 250)
    wrong = await desk.ask("POST", "/workloads", "ada", json=asked | {"kind": "training"})
    assert wrong.fields == {"template": "unknown_template"}


async def test_every_entry_that_comes_along_is_a_valid_request(desk: Desk) -> None:
    for name in await catalogue(desk, "ada"):
        asked = {"project": "vision", "name": "x", "kind": "inference", "template": name}
        forecast = await desk.ask("POST", "/workloads?dry_run=true", "ada", json=asked)
        assert forecast.status == 200 or forecast.code in {"impossible", "cannot_fit"}, (
            *(name, forecast.body),
        )


async def test_only_endpoints_serve_models(desk: Desk) -> None:
    for kinds in ([], ["training"], ["inference", "training"]):
        body = ENTRY | {"kinds": kinds}
        refused = await desk.ask("PUT", "/templates/x?scope=user/ada", "ada", json=body)
        assert refused.fields == {"kinds": "wrong_form"}
