"""What a job may do with its token: its user's work in its project, within limits, and no more."""

from typing import Any

import pytest

from contract.api.service import Desk, Reply

UID = "uid-vision-train-1"


def body(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "project": "vision", "command": ["true"], **fields}


async def submit(desk: Desk, name: str, by: str, **fields: Any) -> Reply:
    return await desk.ask("POST", "/workloads", by, json=body(name, **fields))


async def runs(desk: Desk, name: str) -> str:
    """Have it run; the token of its job."""
    await desk.set_status("vision", name, phase="running")
    return desk.tokens.issue((await desk.workload("vision", name)).meta.uid)


async def test_a_job_submits_watches_and_ends_work_of_its_user(desk: Desk) -> None:
    token = desk.tokens.issue(UID)
    made = await submit(desk, "child", token, labels={"carrel.dev/parent": "forged"})
    assert made.status == 201, made.body
    assert made.body["spec"]["user"] == "ada"
    assert (made.body["spec"]["parent"], made.body["spec"]["ancestors"]) == ("train-1", [UID])
    assert made.body["labels"] == {"carrel.dev/parent": "train-1"}
    who = (await desk.ask("GET", "/whoami", token)).body
    assert (who["user"], who["admin"], who["projects"]) == ("ada", False, ["vision"])
    listed = await desk.ask("GET", "/workloads?label=carrel.dev/parent=train-1", token)
    assert [one["name"] for one in listed.body["items"]] == ["child"]
    assert (await desk.ask("DELETE", "/workloads/vision/child", token)).status == 202
    assert (await desk.workload("vision", "child")).spec.asked_by == "ada"


async def test_it_sees_neither_workspaces_nor_work_of_others(desk: Desk) -> None:
    token = desk.tokens.issue(UID)
    await desk.add("vision", "beas", "bea")
    listed = await desk.ask("GET", "/workloads", token)
    assert [one["name"] for one in listed.body["items"]] == ["train-1"]
    for query in ("?user=bea", "?kind=workspace", "?project=vision&user=bea"):
        assert (await desk.ask("GET", f"/workloads{query}", token)).body["items"] == []
    for name in ("vision/beas", "vision/desk", "speech/train-1"):
        for method, end in (("GET", ""), ("GET", "/logs"), ("GET", "/events"), ("DELETE", "")):
            refused = await desk.ask(method, f"/workloads/{name}{end}", token)
            assert (refused.status, refused.code) == (404, "not_found"), (method, name, end)
    elsewhere = body("x") | {"project": "speech"}
    refused = await desk.ask("POST", "/workloads", token, json=elsewhere)
    assert (refused.status, refused.code) == (403, "not_a_member")
    for wrong, code in (({"kind": "workspace"}, "not_for_jobs"), ({"user": "bea"}, "spawner_only")):
        refused = await submit(desk, "x", token, **wrong)
        assert (refused.status, refused.code) == (403, code)


async def test_depth_and_number_are_bounded_also_in_batches(desk: Desk) -> None:
    assert (await submit(desk, "child", desk.tokens.issue(UID))).status == 201
    child = await runs(desk, "child")
    made = await submit(desk, "grandchild", child)
    root = (await desk.workload("vision", "child")).meta.uid
    assert made.body["spec"]["ancestors"] == [UID, root]
    too_deep = await submit(desk, "x", await runs(desk, "grandchild"))
    assert (too_deep.status, too_deep.code) == (409, "too_deep")
    two = {"items": [body("more-1"), body("more-2")]}
    full = await desk.ask("POST", "/workloads:batch", child, json=two)
    assert (full.status, full.code) == (409, "too_many_descendants")
    one = {"items": [body("more-1")]}
    assert (await desk.ask("POST", "/workloads:batch", child, json=one)).status == 200
    assert (await submit(desk, "more-3", child)).code == "too_many_descendants"
    await desk.set_status("vision", "more-1", phase="succeeded")
    assert (await submit(desk, "more-3", child)).status == 201


async def test_the_token_ends_with_the_job_and_with_its_users_membership(desk: Desk) -> None:
    token = desk.tokens.issue(UID)
    for phase in ("pending", "succeeded", "stopped"):
        await desk.set_status("vision", "train-1", phase=phase, ended_at=desk.clock.now)
        refused = await submit(desk, "x", token)
        assert (refused.status, refused.code) == (403, "task_token_expired"), phase
    await runs(desk, "train-1")
    assert (await desk.ask("DELETE", "/workloads/vision/train-1", "ada")).status == 202
    assert (await submit(desk, "x", token)).code == "being_deleted"
    assert (await submit(desk, "y", desk.tokens.issue("uid-of-nobody"))).status == 403
    await desk.add("vision", "other", "ada")
    other = await runs(desk, "other")
    assert (await submit(desk, "z", other)).status == 201
    await desk.membership.remove("vision", "ada")
    assert (await submit(desk, "zz", other)).code == "task_token_expired"
    desk.membership.down = True
    assert (await submit(desk, "zz", other)).status == 503


@pytest.mark.parametrize("kind", ["replica", "tensorboard"])
async def test_what_answers_visitors_submits_nothing(desk: Desk, kind: str) -> None:
    await desk.add("vision", "server", "ada", kind=kind)
    assert (await submit(desk, "x", await runs(desk, "server"))).status == 403


async def test_a_job_goes_alone_or_with_all_that_it_submitted(desk: Desk) -> None:
    for name in ("a", "b"):
        assert (await submit(desk, name, desk.tokens.issue(UID))).status == 201
    assert (await submit(desk, "a-1", await runs(desk, "a"))).status == 201
    await desk.set_status("vision", "b", phase="succeeded")

    async def ending() -> list[str]:
        names = ("train-1", "a", "a-1", "b")
        return [one for one in names if (await desk.workload("vision", one)).spec.delete]

    await desk.ask("DELETE", "/workloads/vision/train-1", "ada")
    assert await ending() == ["train-1"]
    await desk.ask("DELETE", "/workloads/vision/train-1?children=true", "ada")
    assert await ending() == ["train-1", "a", "a-1"]
