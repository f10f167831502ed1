"""Groups of nodes over REST: defined, changed, kept while work is kept to them."""

import msgspec
import pytest

from carrel_scheduler.ledger.store import ObjectNotFound
from carrel_schema.objects import Department, DepartmentSpec, Meta, NodeGroupLists, Project, Quota
from contract.api.service import ApiHarness, Reply

A100 = {"name": "a100", "match_labels": {"gpu": "a100"}, "role": "training", "projects": ["vision"]}


async def test_a_group_is_defined_changed_and_removed(harness: ApiHarness) -> None:
    made = await harness.ask("POST", "/node-groups", "root", json=A100)
    assert (made.status, made.headers["Location"].rpartition("/")[2]) == (201, "a100")
    assert (made.body["defined"], made.body["projects"]) == (True, ["vision"])
    again = await harness.ask("POST", "/node-groups", "root", json=A100)
    assert (again.status, again.body["code"]) == (409, "already_exists")
    wider = {"node_names": ["n1"], "expected_version": made.body["version"]}
    changed = await harness.ask("PUT", "/node-groups/a100", "root", json=wider)
    assert (changed.body["match_labels"], changed.body["node_names"]) == ({}, ["n1"])
    assert (changed.body["role"], changed.body["projects"]) == ("", [])
    stale = await harness.ask("PUT", "/node-groups/a100", "root", json=wider)
    assert (stale.status, stale.body["code"]) == (409, "conflict")
    assert (await harness.ask("PUT", "/node-groups/none", "root", json=wider)).status == 404
    assert (await harness.ask("DELETE", "/node-groups/a100", "root")).status == 204
    assert (await harness.ask("DELETE", "/node-groups/a100", "root")).status == 404


async def test_what_is_wrong_is_told_by_its_field(harness: ApiHarness) -> None:
    async def wrong(**body: object) -> tuple[str, str]:
        asked = {"name": "one", "node_names": ["n1"]} | body
        refused = await harness.ask("POST", "/node-groups", "root", json=asked)
        assert refused.status == 422, refused.body
        return refused.body["errors"][0]["field"], refused.body["errors"][0]["code"]

    assert await wrong(node_names=[]) == ("match_labels", "missing_field")
    assert await wrong(projects=["nowhere"]) == ("projects.0", "unknown_project")
    assert await wrong(departments=["nowhere"]) == ("departments.0", "unknown_department")
    assert (await wrong(name="Capital"))[0] == "name"
    assert (await wrong(role="other"))[0] == "role"


async def test_a_group_to_which_work_is_kept_stays(harness: ApiHarness) -> None:
    await harness.ask("POST", "/node-groups", "root", json=A100)
    spec = DepartmentSpec(node_groups=NodeGroupLists(training=["a100"]))
    await harness.ledger.create(Department(meta=Meta(name="arts"), spec=spec))
    refused = await harness.ask("DELETE", "/node-groups/a100", "root")
    assert (refused.status, refused.body["code"]) == (409, "node_group_in_use")
    assert "the department `arts`" in refused.body["detail"]
    await harness.ask("PUT", "/departments/arts", "root", json={})
    assert (await harness.ask("DELETE", "/node-groups/a100", "root")).status == 204


async def test_members_of_projects_do_not_see_whose_groups_there_are(harness: ApiHarness) -> None:
    await harness.ask("POST", "/node-groups", "root", json=A100)
    for method, path in (("GET", ""), ("DELETE", "/a100")):
        assert (await harness.ask(method, f"/node-groups{path}", "ada")).status == 403
    body = {"subject": "ada", "role": "viewer", "scope": "platform"}
    await harness.ask("POST", "/access-rules", "root", json=body)
    assert (await harness.ask("GET", "/node-groups", "ada")).status == 200
    assert (await harness.ask("POST", "/node-groups", "ada", json=A100)).status == 403


async def test_limits_in_groups_are_patched_one_by_one(harness: ApiHarness) -> None:
    """A group that no node is in is refused; null takes a limit away, for one group or for all."""
    project = await harness.ledger.get(Project, "vision")
    project.spec = msgspec.structs.replace(project.spec, node_group_limits={"a100": 4, "h100": 2})
    await harness.ledger.update(project)
    field = "node_group_limits"

    async def patch(value: object) -> Reply:
        return await harness.ask("PATCH", "/projects/vision", "root", json={field: value})

    assert (await patch({"a100": None})).body[field] == {"h100": 2.0}
    unknown = await patch({"tpu": 1})
    assert (unknown.status, unknown.body["errors"][0]["field"]) == (422, field)
    assert unknown.body["errors"][0]["code"] == "unknown_node_group"
    assert (await patch({"h100": -1})).body["errors"][0]["field"] == f"{field}.h100"
    assert (await patch({"h100": 0.001})).body["errors"][0]["code"] == "bad_gpu_share"
    assert (await patch({"No Name": 1})).status == 422
    mine = await harness.ask("PATCH", "/projects/vision", "ada", json={field: None})
    assert mine.status == 403
    assert (await patch(None)).body[field] == {}
    refused = await harness.ask("PUT", "/departments/arts", "root", json={field: {"tpu": 1}})
    assert (refused.status, refused.body["errors"][0]["field"]) == (422, field)


@pytest.mark.parametrize("kind", ["training", "interactive"])
async def test_a_department_is_kept_to_groups_that_there_are(
    harness: ApiHarness, kind: str
) -> None:
    """A name that no node's group has is refused, also in a preview; one that was there stays."""
    harness.live.node_group = "a100"

    async def put(name: str, path: str = "") -> Reply:
        lists = {"node_groups": {kind: [name]}}
        method = "POST" if path else "PUT"
        return await harness.ask(method, f"/departments/arts{path}", "root", json=lists)

    for path in ("", "/preview"):
        refused = await put("a10", path)
        assert refused.status == 422, refused.body
        [error] = refused.body["errors"]
        assert (error["field"], error["code"]) == (f"node_groups.{kind}", "unknown_node_group")
        assert (error["value"], error["expected"]) == ("a10", "`a100`")
    with pytest.raises(ObjectNotFound):
        await harness.ledger.get(Department, "arts")
    assert (await put("a100")).body["node_groups"][kind] == ["a100"]
    harness.live.node_group = ""
    assert (await put("a100")).status == 200
    assert (await put("a100", "/preview")).status == 200


async def test_quotas_in_groups_are_at_most_the_quota_in_all(harness: ApiHarness) -> None:
    """Other changes of a project that says more, since a manifest did, are not refused."""
    project = await harness.ledger.get(Project, "vision")
    project.spec = msgspec.structs.replace(
        project.spec,
        node_group_quotas={"a100": 3, "h100": 2},
        quota=Quota(gpu_milli=4000),
    )
    await harness.ledger.update(project)
    field = "node_group_quotas"

    async def patch(**changes: object) -> Reply:
        return await harness.ask("PATCH", "/projects/vision", "root", json=changes)

    assert (await patch(description="Images")).status == 200
    refused = await patch(node_group_quotas={"a100": 2.5})
    assert refused.status == 422
    (error,) = refused.body["errors"]
    assert (error["field"], error["code"]) == (field, "node_group_quotas_above_quota")
    assert error["value"] == 4.5
    assert "`quota.gpus` in all groups together, which is 4" in error["expected"]
    assert (await patch(node_group_quotas={"a100": 2})).body[field] == {"a100": 2, "h100": 2}
    assert (await patch(quota={"gpus": 3})).status == 422
    assert (await patch(node_group_quotas={"a100": None})).body[field] == {"h100": 2}
    assert (await patch(node_group_quotas={"tpu": 1})).body["errors"][0]["code"] == (
        "unknown_node_group"
    )
    mine = await harness.ask("PATCH", "/projects/vision", "ada", json={field: None})
    assert mine.status == 403
    assert (await patch(node_group_quotas=None)).body[field] == {}
    harness.live.node_group = "a100"
    body = {field: {"a100": 1}, "quota": {"gpus": 0}}
    for method, path in (("PUT", ""), ("POST", "/preview")):
        whole = await harness.ask(method, f"/departments/arts{path}", "root", json=body)
        assert whole.body["errors"][0]["code"] == "node_group_quotas_above_quota"


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ("node_group_limits", "GPUs of the project `vision` are limited in `a100`"),
        ("node_group_quotas", "GPUs are guaranteed to the project `vision` in `a100`"),
    ],
)
async def test_a_group_with_a_limit_or_a_quota_stays(
    harness: ApiHarness, field: str, said: str
) -> None:
    await harness.ask("POST", "/node-groups", "root", json=A100)
    project = await harness.ledger.get(Project, "vision")
    project.spec = msgspec.structs.replace(project.spec, **{field: {"a100": 4}})
    await harness.ledger.update(project)
    refused = await harness.ask("DELETE", "/node-groups/a100", "root")
    assert (refused.status, refused.body["code"]) == (409, "node_group_in_use")
    assert said in refused.body["detail"]
