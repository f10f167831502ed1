"""What a job may do with its token: its user's work in its project, within limits, and no more."""

from typing import Any

import pytest

from contract.api.service import ApiHarness, Reply

UID = "uid-vision-train-1"


def body(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "project": "vision", "command": ["true"], **fields}


async def submit(harness: ApiHarness, name: str, by: str, **fields: Any) -> Reply:
    return await harness.ask("POST", "/workloads", by, json=body(name, **fields))


async def runs(harness: ApiHarness, name: str) -> str:
    """Have it run; the token of its job."""
    await harness.set_status("vision", name, phase="running")
    return harness.tokens.issue((await harness.workload("vision", name)).meta.uid)


async def test_a_job_submits_watches_and_ends_work_of_its_user(harness: ApiHarness) -> None:
    token = harness.tokens.issue(UID)
    made = await submit(harness, "child", token, labels={"carrel.dev/parent": "forged"})
    assert made.status == 201, made.body
    assert made.body["spec"]["user"] == "ada"
    assert (made.body["spec"]["parent"], made.body["spec"]["ancestors"]) == ("train-1", [UID])
    assert made.body["labels"] == {"carrel.dev/parent": "train-1"}
    who = (await harness.ask("GET", "/whoami", token)).body
    assert (who["user"], who["admin"], who["projects"]) == ("ada", False, ["vision"])
    listed = await harness.ask("GET", "/workloads?label=carrel.dev/parent=train-1", token)
    assert [one["name"] for one in listed.body["items"]] == ["child"]
    assert (await harness.ask("DELETE", "/workloads/vision/child", token)).status == 202
    assert (await harness.workload("vision", "child")).spec.asked_by == "ada"


async def test_it_sees_neither_workspaces_nor_work_of_others(harness: ApiHarness) -> None:
    token = harness.tokens.issue(UID)
    await harness.add("vision", "beas", "bea")
    listed = await harness.ask("GET", "/workloads", token)
    assert [one["name"] for one in listed.body["items"]] == ["train-1"]
    for query in ("?user=bea", "?kind=workspace", "?project=vision&user=bea"):
        assert (await harness.ask("GET", f"/workloads{query}", token)).body["items"] == []
    for name in ("vision/beas", "vision/desk", "speech/train-1"):
        for method, end in (("GET", ""), ("GET", "/logs"), ("GET", "/events"), ("DELETE", "")):
            refused = await harness.ask(method, f"/workloads/{name}{end}", token)
            assert (refused.status, refused.code) == (404, "not_found"), (method, name, end)
    elsewhere = body("x") | {"project": "speech"}
    refused = await harness.ask("POST", "/workloads", token, json=elsewhere)
    assert (refused.status, refused.code) == (403, "not_a_member")
    for wrong, code in (({"kind": "workspace"}, "not_for_jobs"), ({"user": "bea"}, "spawner_only")):
        refused = await submit(harness, "x", token, **wrong)
        assert (refused.status, refused.code) == (403, code)


async def test_depth_and_number_are_bounded_also_in_batches(harness: ApiHarness) -> None:
    assert (await submit(harness, "child", harness.tokens.issue(UID))).status == 201
    child = await runs(harness, "child")
    made = await submit(harness, "grandchild", child)
    root = (await harness.workload("vision", "child")).meta.uid
    assert made.body["spec"]["ancestors"] == [UID, root]
    too_deep = await submit(harness, "x", await runs(harness, "grandchild"))
    assert (too_deep.status, too_deep.code) == (409, "too_deep")
    two = {"items": [body("more-1"), body("more-2")]}
    full = await harness.ask("POST", "/workloads:batch", child, json=two)
    assert (full.status, full.code) == (409, "too_many_descendants")
    one = {"items": [body("more-1")]}
    assert (await harness.ask("POST", "/workloads:batch", child, json=one)).status == 200
    assert (await submit(harness, "more-3", child)).code == "too_many_descendants"
    await harness.set_status("vision", "more-1", phase="succeeded")
    assert (await submit(harness, "more-3", child)).status == 201


async def test_the_token_ends_with_the_job_and_with_its_users_membership(
    harness: ApiHarness,
) -> None:
    token = harness.tokens.issue(UID)
    for phase in ("pending", "succeeded", "stopped"):
        await harness.set_status("vision", "train-1", phase=phase, ended_at=harness.clock.now)
        refused = await submit(harness, "x", token)
        assert (refused.status, refused.code) == (403, "task_token_expired"), phase
    await runs(harness, "train-1")
    assert (await harness.ask("DELETE", "/workloads/vision/train-1", "ada")).status == 202
    assert (await submit(harness, "x", token)).code == "being_deleted"
    assert (await submit(harness, "y", harness.tokens.issue("uid-of-nobody"))).status == 403
    await harness.add("vision", "other", "ada")
    other = await runs(harness, "other")
    assert (await submit(harness, "z", other)).status == 201
    await harness.membership.remove("vision", "ada")
    assert (await submit(harness, "zz", other)).code == "task_token_expired"
    harness.membership.down = True
    assert (await submit(harness, "zz", other)).status == 503


@pytest.mark.parametrize("kind", ["replica", "tensorboard"])
async def test_what_answers_visitors_submits_nothing(harness: ApiHarness, kind: str) -> None:
    await harness.add("vision", "server", "ada", kind=kind)
    assert (await submit(harness, "x", await runs(harness, "server"))).status == 403


async def test_a_job_goes_alone_or_with_all_that_it_submitted(harness: ApiHarness) -> None:
    for name in ("a", "b"):
        assert (await submit(harness, name, harness.tokens.issue(UID))).status == 201
    assert (await submit(harness, "a-1", await runs(harness, "a"))).status == 201
    await harness.set_status("vision", "b", phase="succeeded")

    async def ending() -> list[str]:
        names = ("train-1", "a", "a-1", "b")
        return [one for one in names if (await harness.workload("vision", one)).spec.delete]

    await harness.ask("DELETE", "/workloads/vision/train-1", "ada")
    assert await ending() == ["train-1"]
    await harness.ask("DELETE", "/workloads/vision/train-1?children=true", "ada")
    assert await ending() == ["train-1", "a", "a-1"]
