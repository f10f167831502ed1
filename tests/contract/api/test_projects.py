"""Projects, their members, and the Hub behind them."""

import pytest

from carrel_scheduler.ledger.store import ObjectNotFound
from carrel_schema.objects import Project, Workload
from contract.api.service import ApiHarness


async def test_the_most_gpus_of_each_user_is_set_and_taken_away(harness: ApiHarness) -> None:
    assert (await harness.ask("GET", "/projects/vision", "ada")).body["max_gpus_per_user"] is None
    most = {"max_gpus_per_user": 1.5}
    set_to = await harness.ask("PATCH", "/projects/vision", "root", json=most)
    assert set_to.body["max_gpus_per_user"] == 1.5
    wrong = await harness.ask("PATCH", "/projects/vision", "root", json={"max_gpus_per_user": -1})
    assert wrong.body["errors"][0]["field"] == "max_gpus_per_user"
    none = {"max_gpus_per_user": None}
    assert (await harness.ask("PATCH", "/projects/vision", "ada", json=none)).status == 403
    removed = await harness.ask("PATCH", "/projects/vision", "root", json=none)
    assert removed.body["max_gpus_per_user"] is None


async def test_the_order_of_users_is_set_and_found_without_effect(harness: ApiHarness) -> None:
    assert (await harness.ask("GET", "/projects/vision", "ada")).body["user_order"] == "submission"
    fair = {"user_order": "fair-share"}
    assert (await harness.ask("PATCH", "/projects/vision", "ada", json=fair)).status == 403
    set_to = await harness.ask("PATCH", "/projects/vision", "root", json=fair)
    assert set_to.body["user_order"] == "fair-share"
    wrong = await harness.ask("PATCH", "/projects/vision", "root", json={"user_order": "fifo"})
    assert wrong.fields == {"user_order": "unknown_value"}, wrong.body

    async def found() -> list[str]:
        told = await harness.ask("GET", "/quota-findings", "root")
        return [one["field"] for one in told.body["items"] if one["name"] == "vision"]

    assert "user_order" not in await found(), "ada and bea"
    harness.membership.groups["vision"] = {"ada"}
    assert "user_order" in await found()
    harness.membership.down = True
    assert "user_order" not in await found()


async def test_a_project_is_made_with_its_group_and_a_colour_of_its_own(
    harness: ApiHarness,
) -> None:
    body = {"name": "robots", "quota": {"gpus": 2}, "interactive": {"idle_timeout_seconds": 3600}}
    reply = await harness.ask("POST", "/projects", "root", json=body)
    assert reply.status == 201, reply.body
    assert reply.headers["Location"] == "/services/carrel/api/v1/projects/robots"
    assert reply.body["quota"] == {"gpus": 2.0, "cpu_millicores": None, "memory_bytes": None}
    assert reply.body["interactive"]["idle_timeout_seconds"] == 3600
    assert reply.body["color"] == 1
    assert harness.membership.groups["robots"] == set()
    again = await harness.ask("POST", "/projects", "root", json=body)
    assert (again.status, again.code) == (409, "already_exists")
    colors = set()
    for number in range(11):
        made = await harness.ask("POST", "/projects", "root", json={"name": f"p-{number}"})
        colors.add(made.body["color"])
    # Both furnished projects have colour 0, which is taken again last.
    assert colors == set(range(2, 12)) | {1}


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("system", "reserved_name"),
        ("default", "reserved_name"),
        ("kube-system", "reserved_name"),
        ("a" * 57, "bad_name"),
        ("a" * 63, "bad_name"),
        ("a\n", "bad_name"),
    ],
)
async def test_names_that_no_cluster_has_a_namespace_for_are_refused_here_too(
    harness: ApiHarness, name: str, code: str
) -> None:
    reply = await harness.ask("POST", "/projects", "root", json={"name": name})
    assert (reply.status, reply.code) == (422, code), reply.body
    assert [(one["field"], one["code"]) for one in reply.body["errors"]] == [("name", code)]
    with pytest.raises(ObjectNotFound):
        await harness.ledger.get(Project, name)


async def test_without_the_hub_no_half_a_project_is_made_or_removed(harness: ApiHarness) -> None:
    harness.membership.down = True
    made = await harness.ask("POST", "/projects", "root", json={"name": "robots"})
    assert (made.status, made.code) == (503, "hub_unavailable")
    with pytest.raises(ObjectNotFound):
        await harness.ledger.get(Project, "robots")
    harness.membership.down = False
    await harness.ask("POST", "/projects", "root", json={"name": "robots"})
    harness.membership.down = True
    assert (await harness.ask("DELETE", "/projects/robots", "root")).status == 503
    assert (await harness.ledger.get(Project, "robots")).meta.name == "robots"


async def test_projects_show_their_use(harness: ApiHarness) -> None:
    reply = await harness.ask("GET", "/projects")
    assert [item["name"] for item in reply.body["items"]] == ["vision"]
    assert reply.body["items"][0]["use"] == {
        "gpus_allocated": 3.0,
        "gpus_borrowed": 1.0,
        "gpus_waiting": 5.0,
        "fair_share_gpus": 2.0,
        "cpu_allocated_millicores": 3000,
        "memory_allocated_bytes": 2**30,
        "running": 3,
        "waiting": 5,
    }
    everything = await harness.ask("GET", "/projects", "root")
    assert [item["name"] for item in everything.body["items"]] == ["speech", "vision"]
    one = await harness.ask("GET", "/projects/vision", "bea")
    assert one.body == reply.body["items"][0]


async def test_a_patch_merges_and_may_insist_on_a_version(harness: ApiHarness) -> None:
    version = (await harness.ask("GET", "/projects/vision")).body["resource_version"]
    patch = {"resource_version": version, "quota": {"gpus": 1}, "limit": {"gpus": 4}}
    reply = await harness.ask("PATCH", "/projects/vision", "root", json=patch)
    assert (reply.status, reply.body["quota"]["gpus"], reply.body["limit"]["gpus"]) == (200, 1, 4)
    assert reply.body["resource_version"] > version
    late = await harness.ask("PATCH", "/projects/vision", "root", json=patch)
    assert (late.status, late.code) == (409, "conflict")
    merge = {"Content-Type": "application/merge-patch+json"}
    reply = await harness.ask(
        "PATCH", "/projects/vision", "root", data=b'{"limit": {"gpus": null}}', headers=merge
    )
    assert (reply.body["quota"]["gpus"], reply.body["limit"]["gpus"]) == (1, None)
    bad = await harness.ask("PATCH", "/projects/vision", "root", json={"limit": {"gpus": 0}})
    assert (bad.status, bad.code) == (422, "limit_below_quota")
    missing = await harness.ask("PATCH", "/projects/robots", "root", json={})
    assert (missing.status, missing.code) == (404, "not_found")


async def test_a_dry_run_of_a_patch_tells_who_starts_and_who_gives_way(harness: ApiHarness) -> None:
    reply = await harness.ask(
        "PATCH", "/projects/vision?dry_run=true", "root", json={"quota": {"gpus": 0}}
    )
    assert reply.body == {"would_start": ["vision/a"], "would_give_way": ["speech/b"]}
    assert b'"gpu_milli":0' in harness.live.previewed[0]
    assert (await harness.ledger.get(Project, "vision")).spec.quota.gpu_milli == 2000


async def test_only_an_empty_project_can_be_deleted(harness: ApiHarness) -> None:
    reply = await harness.ask("DELETE", "/projects/vision", "root")
    assert (reply.status, reply.code) == (409, "project_in_use")
    for name in ("train-1", "desk"):
        await harness.ledger.delete(Workload, name, "vision")
    assert (await harness.ask("DELETE", "/projects/vision", "root")).status == 204
    assert "vision" not in harness.membership.groups
    reply = await harness.ask("DELETE", "/projects/vision", "root")
    assert (reply.status, reply.code) == (404, "not_found")
    body = {"name": "x", "project": "vision", "command": ["x"]}
    late = await harness.ask("POST", "/workloads", json=body)
    assert (late.status, late.fields) == (422, {"project": "unknown_project"})


async def test_members_are_the_hubs_group(harness: ApiHarness) -> None:
    members = "/projects/vision/members"
    assert (await harness.ask("GET", members)).body == {"users": ["ada", "bea"]}
    added = await harness.ask("PUT", f"{members}/dora", "root")
    assert (added.status, added.body) == (200, {"users": ["ada", "bea", "dora"]})
    assert harness.identity.forgotten == ["dora"]
    for _ in range(2):
        assert (await harness.ask("DELETE", f"{members}/ada", "root")).status == 204
    assert (await harness.ask("GET", members)).body == {"users": ["bea", "dora"]}
    unknown = await harness.ask("PUT", f"{members}/zoe", "root")
    assert (unknown.status, unknown.code) == (404, "unknown_user")
    harness.membership.down = True
    assert (await harness.ask("PUT", f"{members}/dora", "root")).status == 503


async def test_whoami_tells_projects_and_the_usual_one(harness: ApiHarness) -> None:
    told = (await harness.ask("GET", "/whoami")).body
    permissions = told.pop("permissions")
    assert "workloads:create" in permissions
    assert "projects:create" not in permissions
    assert told == {
        "user": "ada",
        "admin": False,
        "projects": ["vision"],
        "default_project": "vision",
        "roles": [{"role": "researcher", "scope": "project/vision", "source": "member"}],
    }
    root = (await harness.ask("GET", "/whoami", "root")).body
    assert (root["admin"], root["projects"], root["default_project"]) == (
        True,
        ["speech", "vision"],
        None,
    )
    await harness.ledger.put_setting("default_project", "vision")
    assert (await harness.ask("GET", "/whoami", "root")).body["default_project"] == "vision"
    assert (await harness.ask("GET", "/whoami", "nobody")).body["default_project"] is None


async def test_a_guarantee_of_more_gpus_than_there_are_is_refused(harness: ApiHarness) -> None:
    there = sum(node.gpu_milli for node in harness.live.nodes()) / 1000
    body = {"name": "greedy", "quota": {"gpus": there + 1}}
    reply = await harness.ask("POST", "/projects", "root", json=body)
    assert (reply.status, reply.code) == (422, "quota_never_met")
    assert reply.fields == {"quota.gpus": "quota_never_met"}
    reply = await harness.ask("GET", "/projects/greedy", "root")
    assert reply.status == 404


async def test_limits_of_trainings_are_told_and_changed_one_by_one(harness: ApiHarness) -> None:
    none = {"idle_gpu_seconds": None, "time_limit_seconds": None, "apply_to_running": False}
    assert (await harness.ask("GET", "/projects/vision")).body["training"] == none
    for change in ({"idle_gpu_seconds": 7200.0}, {"apply_to_running": True}):
        reply = await harness.ask("PATCH", "/projects/vision", "root", json={"training": change})
        assert reply.status == 200, reply.body
    told = (await harness.ask("GET", "/projects/vision")).body["training"]
    assert told == none | {"idle_gpu_seconds": 7200.0, "apply_to_running": True}
    bad = {"training": {"time_limit_seconds": 0}}
    refused = await harness.ask("PATCH", "/projects/vision", "root", json=bad)
    assert (refused.status, set(refused.fields)) == (422, {"training.time_limit_seconds"})
