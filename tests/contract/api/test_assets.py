"""Assets over HTTP: written in scopes, put together into requests, of which what they say wins."""

from typing import Any

import pytest

from contract.api.service import ApiHarness, Reply

JOB = {"project": "vision", "name": "a", "command": ["true"]}


async def put(
    harness: ApiHarness, kind: str, name: str, body: dict[str, Any], scope: str = "project/vision"
) -> Reply:
    return await harness.ask("PUT", f"/assets/{kind}/{name}?scope={scope}", "root", json=body)


async def spec(harness: ApiHarness, **more: Any) -> dict[str, Any]:
    made = await harness.ask("POST", "/workloads", "ada", json={**JOB, **more})
    assert made.status == 201, made.body
    found: dict[str, Any] = made.body["spec"]
    return found


async def test_work_is_put_together(harness: ApiHarness) -> None:
    await put(
        harness, "environment", "torch", {"fields": {"image": "torch:1", "environment": {"A": "1"}}}
    )
    await put(
        harness, "compute", "half", {"fields": {"gpus": 0.5, "memory_bytes": 2**31}}, "platform"
    )
    await put(harness, "compute", "half", {"fields": {"gpus": 0.25}})
    folder = {"kind": "folder", "source": "/data/words", "destination": "/data/words"}
    await put(harness, "data-source", "words", {"data": folder})
    code = {"kind": "git", "source": "https://h.org/x/y.git", "destination": "lib/y"}
    await put(harness, "data-source", "lib", {"data": code})
    access = {"access_key_id": "i", "secret_access_key": "s"}
    secret = {"type": "access-key", "data": access}
    await harness.ask("PUT", "/secrets/minio?scope=project/vision", "root", json=secret)
    bucket = {"kind": "s3", "source": "s3://b/p", "endpoint": "https://s3.h.org", "secret": "minio"}
    await put(harness, "data-source", "images-1", {"data": bucket})
    assets = {
        "environment": "torch",
        "compute": "half",
        "data_sources": ["words", "lib", "images-1"],
    }
    made = await spec(harness, assets=assets, environment={"A": "2", "B": "3"})
    assert (made["image"], made["gpus"]) == ("torch:1", 0.25)
    assert made["volumes"] == [
        {"source": "/data/words", "destination": "/data/words", "read_only": True}
    ]
    assert made["repositories"][0]["destination"] == "lib/y"
    assert made["environment"]["A"] == "2"
    assert made["environment"]["DATA_IMAGES_1"] == "s3://b/p"
    assert made["environment"]["AWS_ACCESS_KEY_ID"] == "SECRET:minio,access_key_id"
    assert made["assets"] == assets
    said = await spec(harness, name="b", assets={"compute": "half"}, gpu_memory_bytes=2**30)
    assert said["gpu_memory_bytes"] == 2**30
    assert said["gpus"] < 0.25  # by its memory, not what the asset says


@pytest.mark.parametrize(
    ("field", "data"),
    [
        ("volumes", {"kind": "folder", "source": "/d", "destination": "/d"}),
        ("repositories", {"kind": "git", "source": "https://h.org/x.git", "destination": "y"}),
        ("environment", {"kind": "s3", "source": "s3://b"}),
    ],
)
@pytest.mark.parametrize("said", [5, True, "abc", [{"destination": {}}], {"destination": []}])
async def test_data_beside_what_cannot_be_is_refused(
    harness: ApiHarness, field: str, data: dict[str, Any], said: Any
) -> None:
    await put(harness, "data-source", "d", {"data": data})
    body = {**JOB, field: said, "assets": {"data_sources": ["d"]}}
    refused = await harness.ask("POST", "/workloads", "ada", json=body)
    assert refused.status == 422, refused.body
    assert any(name.split(".")[0] == field for name in refused.fields), refused.fields


async def test_assets_come_between_the_request_and_templates(harness: ApiHarness) -> None:
    await put(harness, "compute", "small", {"fields": {"cpu_millicores": 300}})
    await put(harness, "compute", "large", {"fields": {"cpu_millicores": 900}})
    template = {"fields": {"assets": {"compute": "large"}, "memory_bytes": 2**31}}
    await harness.ask("PUT", "/templates/t?scope=user/ada", "ada", json=template)
    assert (await spec(harness, template="t"))["cpu_millicores"] == 900
    named = await spec(harness, name="b", template="t", assets={"compute": "small"})
    assert (named["cpu_millicores"], named["memory_bytes"]) == (300, 2**31)
    own = await spec(harness, name="c", assets={"compute": "small"}, cpu_millicores=100)
    assert own["cpu_millicores"] == 100


async def test_what_is_not_there_is_refused(harness: ApiHarness) -> None:
    await put(harness, "compute", "ours", {"fields": {"gpus": 1}}, "project/speech")
    await put(harness, "compute", "mine", {"fields": {"gpus": 1}})
    refused = await harness.ask(
        "POST", "/workloads", "ada", json=JOB | {"assets": {"compute": "ours"}}
    )
    assert refused.fields == {"assets.compute": "unknown_asset"}
    assert refused.body["errors"][0]["expected"] == "one of `mine`"
    data = JOB | {"assets": {"data_sources": ["nothing"]}}
    wrong = await harness.ask("POST", "/workloads", "ada", json=data)
    assert wrong.fields == {"assets.data_sources.0": "unknown_asset"}
    shape = await harness.ask("POST", "/workloads", "ada", json=JOB | {"assets": ["ours"]})
    assert shape.status == 422


@pytest.mark.parametrize(
    ("kind", "body", "field"),
    [
        ("compute", {"fields": {"image": "x"}}, "fields.image"),
        ("compute", {"fields": {"gpus": "many"}}, "fields.gpus"),
        ("compute", {}, "fields"),
        ("data-source", {"fields": {"gpus": 1}}, "data"),
        ("data-source", {"data": {"kind": "folder", "source": "data"}}, "data.source"),
        ("data-source", {"data": {"kind": "s3", "source": "https://b"}}, "data.source"),
        ("data-source", {"data": {"kind": "git", "source": "https://h/x"}}, "data.destination"),
    ],
)
async def test_an_asset_that_cannot_be_is_refused(
    harness: ApiHarness, kind: str, body: dict[str, Any], field: str
) -> None:
    refused = await put(harness, kind, "x", body)
    assert (refused.status, field in refused.fields) == (422, True), refused.body


async def test_assets_belong_to_who_made_them(harness: ApiHarness) -> None:
    asset = {"fields": {"gpus": 1}}
    made = await harness.ask("PUT", "/assets/compute/mine?scope=user/ada", "ada", json=asset)
    assert made.status == 200
    assert (await harness.ask("GET", "/assets", "bea")).body["items"] == []
    other = await harness.ask("PUT", "/assets/compute/mine?scope=user/ada", "bea", json=asset)
    assert other.status == 404
    wide = await harness.ask("PUT", "/assets/compute/all?scope=platform", "ada", json=asset)
    assert (wide.status, wide.code) == (403, "missing_permission")
    unknown = await harness.ask("PUT", "/assets/thing/x?scope=user/ada", "ada", json=asset)
    assert unknown.status == 404
    assert (await harness.ask("DELETE", "/assets/compute/mine?scope=user/ada", "ada")).status == 204


async def test_a_workspace_is_put_together_from_assets_of_its_user(harness: ApiHarness) -> None:
    await put(harness, "compute", "large", {"fields": {"gpus": 1, "cpu_millicores": 900}})
    mine = {"fields": {"environment": {"A": "1"}}}
    await harness.ask("PUT", "/assets/environment/mine?scope=user/ada", "ada", json=mine)
    asked: dict[str, Any] = {
        "project": "vision",
        "name": "workspace-ada",
        "kind": "workspace",
        "command": [],
    }
    asked |= {"user": "ada", "hold_for_claim": True, "environment": {"B": "2"}}
    listed = await harness.ask("GET", "/assets", "spawner")
    assert [one["name"] for one in listed.body["items"]] == ["mine", "large"]
    named = asked | {"assets": {"environment": "mine", "compute": "large"}}
    policy = {"kinds": ["workspace"], "rules": {"cpu_millicores": {"max": 500}}}
    await harness.ask("PUT", "/policies/small?scope=project/vision", "root", json=policy)
    draft = {key: value for key, value in named.items() if key != "name"}
    draft["name_prefix"] = "workspace"
    refused = await harness.ask("POST", "/workloads?dry_run=true", "spawner", json=draft)
    assert refused.fields == {"cpu_millicores": "policy"}, refused.body
    made = await harness.ask("POST", "/workloads", "spawner", json=named | {"cpu_millicores": 400})
    assert made.status == 201, made.body
    spec = made.body["spec"]
    assert (spec["gpus"], spec["cpu_millicores"]) == (1, 400)
    fits = draft | {"cpu_millicores": 400}
    seen = await harness.ask("POST", "/workloads?dry_run=true", "spawner", json=fits)
    assert (seen.status, seen.body["workload"]["spec"]["gpus"]) == (200, 1), seen.body
    assert spec["environment"] == {"A": "1", "B": "2"}
    others = named | {"user": "linus", "name": "workspace-linus"}
    unknown = await harness.ask("POST", "/workloads", "spawner", json=others)
    assert unknown.fields == {"assets.environment": "unknown_asset"}, "it is ada's own"
