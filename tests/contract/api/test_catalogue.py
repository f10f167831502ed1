"""The model catalogue over HTTP: entries are templates that name a model."""

from typing import Any

from contract.api.service import ApiHarness

ENTRY: dict[str, Any] = {
    "kinds": ["inference"],
    "description": "Ours.",
    "model": {"source": "vision/reader", "gpu_memory_gib": 24},
    "fields": {"command": ["python", "serve.py"], "gpus": 1.0},
}


async def catalogue(harness: ApiHarness, who: str) -> dict[str, dict[str, Any]]:
    found = await harness.ask("GET", "/catalogue", who)
    assert found.status == 200
    return {one["name"]: one for one in found.body["items"]}


async def test_entries_are_seen_by_who_may_use_their_templates(harness: ApiHarness) -> None:
    made = await harness.ask("PUT", "/templates/reader?scope=project/vision", "ada", json=ENTRY)
    assert made.status == 200
    assert made.body["model"]["source"] == "vision/reader"
    entry = (await catalogue(harness, "ada"))["reader"]
    assert (entry["scope"], entry["gpus"], entry["gpu_memory_gib"]) == ("project/vision", 1.0, 24)
    assert "reader" not in await catalogue(harness, "carl")
    assert (await catalogue(harness, "carl"))["chat-example"]["runs_here"] is True


async def test_one_that_comes_along_is_served_by_its_name(harness: ApiHarness) -> None:
    asked = {"project": "vision", "name": "chat", "kind": "inference", "template": "chat-example"}
    made = await harness.ask("POST", "/workloads", "ada", json=asked | {"environment": {"A": "1"}})
    assert made.status == 201, made.body
    spec = made.body["spec"]
    assert (spec["kind"], spec["command"][-1]) == ("inference", "carrel.job.chat_example")
    assert (spec["environment"], spec["cpu_millicores"]) == ({"A": "1"}, 250)
    wrong = await harness.ask("POST", "/workloads", "ada", json=asked | {"kind": "training"})
    assert wrong.fields == {"template": "unknown_template"}


async def test_every_entry_that_comes_along_is_a_valid_request(harness: ApiHarness) -> None:
    for name in await catalogue(harness, "ada"):
        asked = {"project": "vision", "name": "x", "kind": "inference", "template": name}
        forecast = await harness.ask("POST", "/workloads?dry_run=true", "ada", json=asked)
        assert forecast.status == 200 or forecast.code in {"impossible", "cannot_fit"}, (
            *(name, forecast.body),
        )


async def test_only_endpoints_serve_models(harness: ApiHarness) -> None:
    for kinds in ([], ["training"], ["inference", "training"]):
        body = ENTRY | {"kinds": kinds}
        refused = await harness.ask("PUT", "/templates/x?scope=user/ada", "ada", json=body)
        assert refused.fields == {"kinds": "wrong_form"}
