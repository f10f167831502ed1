"""Named secrets over HTTP: values come in and never go out; whose they are."""

from typing import Any

import pytest

from contract.api.service import ApiHarness, Reply

PLANTED = "planted-2342"
HUB = {"data": {"TOKEN": PLANTED}}
JOB = {"project": "vision", "name": "a", "command": ["true"]}


async def put(
    harness: ApiHarness, name: str, scope: str, body: dict[str, Any], who: str = "ada"
) -> Reply:
    return await harness.ask("PUT", f"/secrets/{name}?scope={scope}", who, json=body)


async def test_a_value_is_named_by_work_and_never_answered(harness: ApiHarness) -> None:
    made = await put(harness, "hub", "user/ada", HUB)
    assert (made.status, made.body["keys"]) == (200, ["TOKEN"])
    asked = JOB | {"environment": {"T": "SECRET:hub,TOKEN", "X": "plain"}}
    job = await harness.ask("POST", "/workloads", "ada", json=asked)
    assert job.body["spec"]["environment"] == {"T": "SECRET:hub,TOKEN", "X": "plain"}
    for path in ("/secrets", "/secrets/hub?scope=user/ada", "/workloads/vision/a"):
        for who in ("ada", "root"):
            assert PLANTED not in str((await harness.ask("GET", path, who)).body)
    listed = await harness.ask("GET", "/secrets", "ada")
    assert [one["name"] for one in listed.body["items"]] == ["hub"]


@pytest.mark.parametrize(
    ("reference", "right"),
    [
        ("SECRET:hub,KEY", "a key of `hub`: `TOKEN`"),
        ("SECRET:nub,TOKEN", "`SECRET:NAME,KEY` with a secret of the user"),
        ("SECRET:,", "`SECRET:NAME,KEY` with a secret of the user"),
    ],
)
async def test_what_is_not_there_is_refused_at_once(
    harness: ApiHarness, reference: str, right: str
) -> None:
    await put(harness, "hub", "project/vision", HUB)
    asked = JOB | {"environment": {"T": reference}}
    refused = await harness.ask("POST", "/workloads", "ada", json=asked)
    assert (refused.status, refused.fields) == (422, {"environment.T": "unknown_secret"})
    assert right in refused.body["errors"][0]["expected"]
    batch = await harness.ask("POST", "/workloads:batch", "ada", json={"items": [asked]})
    assert batch.body["items"][0]["problem"]["code"] == "unknown_secret"


async def test_secrets_of_others_are_neither_seen_nor_named_nor_written(
    harness: ApiHarness,
) -> None:
    await put(harness, "mine", "user/ada", HUB)
    await put(harness, "ours", "project/vision", HUB)
    await put(harness, "all", "platform", HUB, "root")
    listed = await harness.ask("GET", "/secrets", "bea")
    assert [one["name"] for one in listed.body["items"]] == ["all", "ours"]
    others = await harness.ask("GET", "/secrets", "carl")
    assert [one["name"] for one in others.body["items"]] == ["all"]
    asked = JOB | {"environment": {"T": "SECRET:mine,TOKEN"}}
    refused = await harness.ask("POST", "/workloads", "bea", json=asked)
    assert refused.fields == {"environment.T": "unknown_secret"}
    assert "mine" not in refused.body["errors"][0]["expected"]
    assert (await put(harness, "mine", "user/ada", HUB, "bea")).status == 404
    assert (await put(harness, "ours", "project/vision", HUB, "bea")).status == 403
    assert (await put(harness, "x", "project/vision", HUB, "carl")).status == 404
    assert (await put(harness, "x", "project/nowhere", HUB, "carl")).status == 404
    assert (await put(harness, "x", "platform", HUB, "ada")).status == 403
    assert (await harness.ask("DELETE", "/secrets/mine?scope=user/ada", "bea")).status == 404
    assert (await harness.ask("DELETE", "/secrets/mine?scope=user/ada", "ada")).status == 204


async def test_a_refusal_repeats_no_value(harness: ApiHarness) -> None:
    wrong = {"data": {"TOKEN": f"{PLANTED}\x00"}}
    refused = await put(harness, "hub", "user/ada", wrong)
    assert refused.status == 422
    assert PLANTED not in str(refused.body)
    registry = {"type": "registry", "data": {"username": PLANTED}}
    refused = await put(harness, "hub", "user/ada", registry)
    assert refused.fields == {"data": "missing_field"}
    assert "`server`, `password`" in refused.body["errors"][0]["expected"]
    assert PLANTED not in str(refused.body)
