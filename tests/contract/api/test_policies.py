"""Policies and templates over HTTP: one evaluator for every way in."""

from typing import Any

import pytest

from contract.api.service import ApiHarness, Reply

SMALL = {"rules": {"gpus": {"max": 2, "message": "ask Grace"}}}
JOB = {"project": "vision", "name": "a", "command": ["true"], "gpus": 1.0}


async def put(
    harness: ApiHarness,
    name: str,
    scope: str,
    body: dict[str, Any],
    who: str = "root",
    kind: str = "policies",
) -> Reply:
    return await harness.ask("PUT", f"/{kind}/{name}?scope={scope}", who, json=body)


async def test_every_way_in_is_held_to_a_policy(harness: ApiHarness) -> None:
    made = await put(harness, "small", "project/vision", SMALL)
    assert (made.status, made.body["version"], made.body["scope"]) == (200, 1, "project/vision")
    big = JOB | {"gpus": 3.0}
    refused = await harness.ask("POST", "/workloads", "ada", json=big)
    assert (refused.status, refused.code) == (422, "policy")
    assert refused.body["detail"] == (
        "`gpus` is 3; it should be at most 2 (policy `small` of project/vision): ask Grace"
    )
    assert refused.fields == {"gpus": "policy"}
    dry = await harness.ask("POST", "/workloads?dry_run=true", "ada", json=big)
    assert dry.code == "policy"
    batch = await harness.ask(
        "POST", "/workloads:batch", "ada", json={"items": [JOB, big | {"name": "b"}]}
    )
    assert [one["status"] for one in batch.body["items"]] == [201, 422]
    assert (await harness.ask("POST", "/workloads", "root", json=big)).code == "policy"
    changed = await harness.ask("PATCH", "/workloads/vision/a", "ada", json={"priority": 3})
    assert changed.status == 202


async def test_a_change_that_breaks_a_rule_is_refused(harness: ApiHarness) -> None:
    rule = {"rules": {"time_limit_seconds": {"max": 600}}}
    await harness.ask("POST", "/workloads", "ada", json=JOB | {"time_limit_seconds": 300.0})
    await put(harness, "short", "platform", rule)
    path = "/workloads/vision/a"
    longer = await harness.ask("PATCH", path, "ada", json={"time_limit_seconds": 900.0})
    assert (longer.status, longer.code) == (422, "policy")
    shorter = await harness.ask("PATCH", path, "ada", json={"time_limit_seconds": 200.0})
    assert shorter.status == 202


async def test_defaults_fill_and_are_told(harness: ApiHarness) -> None:
    await harness.ask("PUT", "/departments/lab", "root", json={})
    await harness.ask("PATCH", "/projects/vision", "root", json={"department": "lab"})
    rules = {"rules": {"cpu_millicores": {"default": 700}, "environment.PROXY": {"default": "p"}}}
    await put(harness, "usual", "department/lab", rules)
    made = await harness.ask("POST", "/workloads", "ada", json=JOB)
    assert made.body["spec"]["cpu_millicores"] == 700
    assert made.body["spec"]["environment"] == {"PROXY": "p"}
    told = await harness.ask("GET", "/effective-policy?project=vision&kind=training", "ada")
    assert told.body["rules"]["cpu_millicores"]["default"] == {
        "value": 700,
        "policy": "usual",
        "scope": "department/lab",
        "message": "",
    }


async def test_a_policy_says_which_live_work_it_would_refuse(harness: ApiHarness) -> None:
    await harness.ask("POST", "/workloads", "ada", json=JOB | {"gpus": 3.0})
    tried = await put(harness, "small", "platform", SMALL)
    names = {one["name"] for one in tried.body["would_refuse"]}
    assert "a" in names
    assert (await harness.ask("GET", "/workloads/vision/a", "ada")).status == 200


async def test_a_dry_run_writes_nothing(harness: ApiHarness) -> None:
    path = "/policies/small?scope=platform&dry_run=true"
    assert (await harness.ask("PUT", path, "root", json=SMALL)).body["version"] == 0
    assert (await harness.ask("GET", "/policies", "root")).body["items"] == []


@pytest.mark.parametrize(
    ("scope", "body", "field", "code"),
    [
        ("team/x", SMALL, "scope", "wrong_form"),
        ("user/ada", SMALL, "scope", "wrong_form"),
        ("project/none", SMALL, "scope", "unknown_project"),
        ("department/none", SMALL, "scope", "unknown_department"),
        ("platform", {"rules": {"gpuz": {"max": 1}}}, "rules.gpuz", "unknown_field"),
        ("platform", {"rules": {"gpus": {"maximum": 1}}}, "rules.gpus.maximum", "unknown_field"),
        ("platform", {"rules": {"gpus": {"max": 1, "min": 2}}}, "rules.gpus.min", "bad_rule"),
        ("platform", {"rules": {"gpus": {"default": "two"}}}, "rules.gpus", "wrong_type"),
        ("platform", {"rules": {}}, "rules", "too_short"),
    ],
)
async def test_a_wrong_policy_is_refused_by_field(
    harness: ApiHarness, scope: str, body: dict[str, Any], field: str, code: str
) -> None:
    refused = await put(harness, "p", scope, body)
    assert refused.status == 422
    assert refused.fields == {field: code}


async def test_a_narrower_policy_that_loosens_is_refused(harness: ApiHarness) -> None:
    await put(harness, "small", "platform", SMALL)
    refused = await put(harness, "large", "project/vision", {"rules": {"gpus": {"max": 8}}})
    assert refused.fields == {"rules.gpus.max": "loosens_policy"}
    assert "policy `small` of platform" in refused.body["detail"]


async def test_only_admins_write_and_nobody_reads_policies_of_others(harness: ApiHarness) -> None:
    assert (await put(harness, "small", "project/vision", SMALL, "ada")).status == 403
    await put(harness, "small", "project/vision", SMALL)
    assert (
        await harness.ask("DELETE", "/policies/small?scope=project/vision", "ada")
    ).status == 403
    assert [
        one["name"] for one in (await harness.ask("GET", "/policies", "ada")).body["items"]
    ] == ["small"]
    assert (await harness.ask("GET", "/policies", "carl")).body["items"] == []
    one = "/policies/small?scope=project/vision"
    assert (await harness.ask("GET", one, "carl")).status == 404
    assert (await harness.ask("GET", "/effective-policy?project=vision", "carl")).status == 403
    assert (await harness.ask("DELETE", one, "root")).status == 204
    assert (await harness.ask("DELETE", one, "root")).status == 404
    assert (await harness.ask("POST", "/workloads", "ada", json=JOB | {"gpus": 3.0})).status == 201


async def test_nobody_overwrites_what_somebody_else_changed(harness: ApiHarness) -> None:
    await put(harness, "small", "platform", SMALL)
    late = await put(harness, "small", "platform", SMALL | {"expected_version": 0})
    assert late.status == 409
    assert (await put(harness, "small", "platform", SMALL | {"expected_version": 1})).status == 200


BATCH_OPS = {
    "kinds": ["training"],
    "fields": {
        "gpus": 1.0,
        "command": ["python", "batch.py"],
        "environment": {"A": "1", "B": "1"},
        "backoff_limit": 2,
    },
}


async def test_a_template_fills_what_is_not_said_and_explicit_fields_win(
    harness: ApiHarness,
) -> None:
    assert (
        await put(harness, "batch-ops", "user/ada", BATCH_OPS, "ada", "templates")
    ).status == 200
    asked = {"project": "vision", "name": "a", "template": "batch-ops"}
    made = await harness.ask(
        "POST", "/workloads", "ada", json=asked | {"gpus": 2.0, "environment": {"B": "2"}}
    )
    spec = made.body["spec"]
    assert (spec["gpus"], spec["command"], spec["backoff_limit"]) == (
        2.0,
        ["python", "batch.py"],
        2,
    )
    assert spec["environment"] == {"A": "1", "B": "2"}
    in_mib = asked | {"name": "b", "gpu_memory_bytes": 2**30}
    shared = await harness.ask("POST", "/workloads?dry_run=true", "ada", json=in_mib)
    assert shared.status == 200


async def test_default_templates_count_unnamed_and_policies_after_them(harness: ApiHarness) -> None:
    default = {"default": True, "fields": {"gpus": 3.0, "cpu_millicores": 300}}
    assert (await put(harness, "usual", "platform", default, "ada", "templates")).status == 403
    await put(harness, "usual", "platform", default, "root", "templates")
    await put(
        harness,
        "narrow",
        "project/vision",
        {"default": True, "fields": {"cpu_millicores": 400}},
        "root",
        "templates",
    )
    plain = {"project": "vision", "name": "a", "command": ["true"]}
    made = await harness.ask("POST", "/workloads", "ada", json=plain)
    assert (made.body["spec"]["gpus"], made.body["spec"]["cpu_millicores"]) == (3.0, 400)
    await put(harness, "small", "platform", SMALL)
    refused = await harness.ask("POST", "/workloads", "ada", json=plain | {"name": "b"})
    assert refused.fields == {"gpus": "policy"}
    items = [plain | {"name": "c", "gpus": 1.0}]
    batch = await harness.ask("POST", "/workloads:batch", "ada", json={"items": items})
    assert batch.body["items"][0]["status"] == 201


@pytest.mark.parametrize(
    ("fields", "field", "code"),
    [
        ({"name": "x"}, "fields.name", "unknown_field"),
        ({"secret_environment": {"A": "b"}}, "fields.secret_environment", "unknown_field"),
        ({"gpus": -1}, "fields.gpus", "too_small"),
        ({"gpuz": 1}, "fields.gpuz", "unknown_field"),
    ],
)
async def test_a_wrong_template_is_refused_by_field(
    harness: ApiHarness, fields: dict[str, Any], field: str, code: str
) -> None:
    refused = await put(harness, "t", "user/ada", {"fields": fields}, "ada", "templates")
    assert (refused.status, refused.fields) == (422, {field: code})


async def test_templates_of_others_are_not_seen_and_not_changed(harness: ApiHarness) -> None:
    await put(harness, "mine", "user/ada", BATCH_OPS, "ada", "templates")
    await put(harness, "ours", "project/vision", BATCH_OPS, "ada", "templates")
    listed = await harness.ask("GET", "/templates", "bea")
    assert [one["name"] for one in listed.body["items"]] == ["ours"]
    assert (await put(harness, "x", "user/ada", BATCH_OPS, "bea", "templates")).status == 404
    assert (
        await put(harness, "ours", "project/vision", BATCH_OPS, "bea", "templates")
    ).status == 403
    assert (await harness.ask("DELETE", "/templates/mine?scope=user/ada", "bea")).status == 404
    assert (await put(harness, "y", "project/vision", BATCH_OPS, "carl", "templates")).status == 404
    asked = {"project": "vision", "name": "b", "template": "mine"}
    refused = await harness.ask("POST", "/workloads", "bea", json=asked)
    assert refused.fields == {"template": "unknown_template"}
    assert "`ours`" in refused.body["detail"]
    for_workspaces = BATCH_OPS | {"kinds": ["workspace"]}
    await put(harness, "mine", "user/ada", for_workspaces, "ada", "templates")
    asked |= {"name": "c", "kind": "training"}
    assert (await harness.ask("POST", "/workloads", "ada", json=asked)).code == "unknown_template"
