"""Assets that policies name: put together before policies are checked, from where the policy is."""

from typing import Any

import pytest

from contract.api.service import ApiHarness
from contract.api.test_assets import JOB, put, spec

WORDS = {"data": {"kind": "folder", "source": "/data/words", "destination": "/words"}}


async def policy(harness: ApiHarness, scope: str, rules: dict[str, Any], **more: Any) -> None:
    path = f"/policies/usual?scope={scope}"
    made = await harness.ask("PUT", path, "root", json={"rules": rules, **more})
    assert made.status == 200, made.body


async def test_a_default_brings_what_the_asset_says(harness: ApiHarness) -> None:
    half = {"fields": {"gpus": 0.5, "cpu_millicores": 300}}
    torch = {"fields": {"image": "torch:1", "environment": {"A": "1"}}}
    await put(harness, "compute", "half", half, "platform")
    await put(harness, "environment", "torch", torch, "platform")
    await put(harness, "data-source", "words", WORDS, "platform")
    names = {"environment": "torch", "compute": "half", "data_sources": ["words"]}
    rules = {f"assets.{part}": {"default": name} for part, name in names.items()}
    await policy(harness, "platform", rules | {"cpu_millicores": {"default": 700}})
    made = await spec(harness, environment={"B": "2"}, assets=None)
    assert (made["assets"], made["gpus"], made["cpu_millicores"]) == (names, 0.5, 300)
    assert (made["image"], made["environment"]) == ("torch:1", {"A": "1", "B": "2"})
    assert [one["destination"] for one in made["volumes"]] == ["/words"]
    items = {"items": [JOB | {"name": "b"}]}
    await harness.ask("POST", "/workloads:batch", "ada", json=items)
    assert (await harness.workload("vision", "b")).spec.resources.gpu_milli == 500


async def test_what_a_request_or_a_template_names_comes_before_a_default(
    harness: ApiHarness,
) -> None:
    await put(harness, "compute", "half", {"fields": {"gpus": 0.5, "memory_bytes": 2**31}})
    await put(harness, "compute", "tiny", {"fields": {"gpus": 0.25}})
    await policy(harness, "project/vision", {"assets.compute": {"default": "half"}})
    named = await spec(harness, assets={"compute": "tiny"})
    assert (named["assets"]["compute"], named["gpus"]) == ("tiny", 0.25)
    assert named["memory_bytes"] == 2**30, "nothing of the one that was not taken"
    template = {"fields": {"assets": {"compute": "tiny"}}}
    await harness.ask("PUT", "/templates/t?scope=user/ada", "ada", json=template)
    assert (await spec(harness, name="b", template="t"))["gpus"] == 0.25
    own = await spec(harness, name="c", gpus=1.0, assets={"compute": None})
    assert (own["gpus"], own["assets"]["compute"]) == (1, "half")


async def test_nobody_puts_another_in_the_place_of_a_policys_asset(harness: ApiHarness) -> None:
    """It is sought where the policy is, and above: not among one's own of the same name."""
    await put(harness, "compute", "half", {"fields": {"gpus": 0.5}}, "platform")
    mine = {"fields": {"gpus": 2}}
    for scope in ("user/ada", "project/vision"):
        made = await harness.ask("PUT", f"/assets/compute/half?scope={scope}", "ada", json=mine)
        assert made.status == 200
    await policy(harness, "platform", {"assets.compute": {"default": "half", "locked": True}})
    assert (await spec(harness))["gpus"] == 0.5
    assert (await spec(harness, name="b", assets={"compute": "half"}))["gpus"] == 0.5
    await put(harness, "compute", "other", {"fields": {"gpus": 2}})
    body = JOB | {"name": "c", "assets": {"compute": "other"}}
    refused = await harness.ask("POST", "/workloads", "ada", json=body)
    assert refused.fields == {"assets.compute": "policy"}


async def test_a_default_that_is_not_there_says_who_names_it(harness: ApiHarness) -> None:
    await put(harness, "compute", "gone", {"fields": {"gpus": 1}})
    await policy(harness, "project/vision", {"assets.compute": {"default": "gone"}})
    await harness.ask("DELETE", "/assets/compute/gone?scope=project/vision", "root")
    refused = await harness.ask("POST", "/workloads", "ada", json=JOB)
    assert refused.fields == {"assets.compute": "unknown_asset"}
    [error] = refused.body["errors"]
    assert "it is named by policy `usual` of project/vision" in error["expected"]
    other = JOB | {"project": "speech"}
    assert (await harness.ask("POST", "/workloads", "carl", json=other)).status == 201


async def test_a_policy_names_assets_that_there_are_for_its_scope(harness: ApiHarness) -> None:
    await put(harness, "compute", "ours", {"fields": {"gpus": 1}})
    await put(harness, "data-source", "ours", WORDS, "platform")
    rules: dict[str, Any] = {"assets.compute": {"default": "ours"}}
    for scope in ("platform", "project/speech"):
        path = f"/policies/usual?scope={scope}"
        refused = await harness.ask("PUT", path, "root", json={"rules": rules})
        assert refused.fields == {"rules.assets.compute.default": "unknown_asset"}, scope
        [error] = refused.body["errors"]
        assert error["expected"] == f"an asset of {scope} or a wider scope: none yet"
    data = {"assets.data_sources": {"default": ["ours", "theirs"]}}
    wrong = await harness.ask(
        "PUT", "/policies/d?scope=project/vision", "root", json={"rules": data}
    )
    assert wrong.fields == {"rules.assets.data_sources.default": "unknown_asset"}
    assert wrong.body["errors"][0]["expected"].endswith("a wider scope: `ours`")
    await policy(harness, "project/vision", rules)
    await harness.ask("PUT", "/departments/lab", "root", json={})
    await harness.ask("PATCH", "/projects/vision", "root", json={"department": "lab"})
    await put(harness, "compute", "lab", {"fields": {"gpus": 1}}, "department/lab")
    await policy(harness, "project/vision", {"assets.compute": {"default": "lab"}})
    await policy(harness, "department/lab", {"assets.compute": {"default": "lab"}})


async def test_defaults_are_those_of_the_kind(harness: ApiHarness) -> None:
    await put(harness, "compute", "half", {"fields": {"gpus": 0.5}})
    rules = {"assets.compute": {"default": "half"}}
    await policy(harness, "project/vision", rules, kinds=["notebook"])
    assert (await spec(harness))["gpus"] == 0
    notebook = {"kind": "notebook", "command": [], "notebook": {"path": "a.ipynb"}}
    assert (await spec(harness, **notebook, name="b"))["gpus"] == 0.5
    timed = {"schedule": {"cron": "0 3 * * *"}, "kind": "schedule", "name": "c"}
    assert (await spec(harness, **timed, notebook={"path": "a.ipynb"}, command=[]))["gpus"] == 0.5


@pytest.mark.parametrize("assets", [None, {}, {"compute": None}, {"data_sources": ["words"]}])
async def test_a_required_asset_has_to_be_named(harness: ApiHarness, assets: Any) -> None:
    await put(harness, "data-source", "words", WORDS)
    await policy(harness, "project/vision", {"assets.compute": {"required": True}})
    refused = await harness.ask("POST", "/workloads", "ada", json=JOB | {"assets": assets})
    assert refused.fields == {"assets.compute": "policy"}
