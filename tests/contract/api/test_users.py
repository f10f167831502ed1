"""People and groups of the directory over the API: rights, checks, what the audit log tells."""

from dataclasses import replace
from typing import Any

import pytest

from carrel_scheduler.workloads.launch import identities
from contract.api.service import ApiHarness


async def entries(harness: ApiHarness) -> list[Any]:
    found = await harness.ask("GET", "/audit?kind=User", "root")
    return list(reversed(found.body["items"]))


async def test_people_are_listed_page_by_page(harness: ApiHarness) -> None:
    page = await harness.ask("GET", "/users?limit=2&first=1", "root")
    assert ([one["name"] for one in page.body["items"]], page.body["total"]) == (["bea", "carl"], 8)
    found = await harness.ask("GET", "/users?search=ro", "root")
    assert [one["name"] for one in found.body["items"]] == ["root"]
    assert (await harness.ask("GET", "/users?limit=501", "root")).status == 422
    assert (await harness.ask("GET", "/users", "ada")).status == 403
    assert (await harness.ask("GET", "/users/me", "ada")).body["name"] == "ada"


async def test_a_change_of_somebody_is_audited_with_what_was_before(harness: ApiHarness) -> None:
    made = await harness.ask("POST", "/users/bea/update", "root", json={"projects": ["vision"]})
    assert [one["project"] for one in made.body["memberships"]] == ["vision"]
    await harness.ask("POST", "/users/bea/update", "root", json={"admin": True, "projects": []})
    await harness.ask("POST", "/users/bea/actions", "root", json={"action": "disable"})
    told = await entries(harness)
    assert [(one["user"], one["verb"], one["scope"]) for one in told] == [
        ("root", "update", "user/bea"),
        ("root", "update", "user/bea"),
        ("root", "disable", "user/bea"),
    ]
    assert told[1]["before"] == {"admin": False, "memberships": ["vision"]}
    assert told[1]["after"] == {"admin": True, "memberships": []}
    assert (told[2]["before"], told[2]["after"]) == ({"state": "active"}, {"state": "disabled"})
    assert all(one["address"] for one in told)
    assert harness.identity.forgotten.count("bea") == 3


async def test_an_invitation_is_told_once_and_in_no_log(harness: ApiHarness) -> None:
    made = await harness.ask("PUT", "/users/emil/invitation", "root", json={"projects": ["vision"]})
    assert made.body["path"].endswith("token=tt")
    [entry] = await entries(harness)
    assert "token" not in str(entry)
    assert entry["after"]["projects"] == ["vision"]
    wrong = await harness.ask("PUT", "/users/Emil/invitation", "root", json={})
    assert (wrong.status, wrong.body["code"]) == (422, "cannot_change")
    assert "cannot be a user name" in wrong.body["detail"]


async def test_refusals_of_the_hub_are_told(harness: ApiHarness) -> None:
    assert (await harness.ask("GET", "/users/zoe", "root")).body["code"] == "unknown_user"
    assert (await harness.ask("DELETE", "/users/root", "root")).status == 409
    wrong = {"old": "wrong", "new": "another-horse"}
    assert (await harness.ask("POST", "/users/me/password", "ada", json=wrong)).status == 403
    right = {"old": "old", "new": "another-horse"}
    assert (await harness.ask("POST", "/users/me/password", "ada", json=right)).status == 204
    assert "horse" not in str(await entries(harness))


async def test_the_table_of_groups(harness: ApiHarness) -> None:
    body = {"projects": ["vision"], "role": "viewer", "scope": "project/speech"}
    made = await harness.ask("PUT", "/directory-groups?group=/lab/vision", "root", json=body)
    assert (made.status, made.body["version"], made.body["changed_by"]) == (200, 1, "root")
    found = await harness.ask("GET", "/directory-groups", "root")
    assert [(one["group"], one["source"]) for one in found.body["items"]] == [
        ("/lab/vision", "table"),
        ("it", "file"),
    ]
    for_hub = await harness.ask("GET", "/directory-groups?source=table", "spawner")
    assert [one["group"] for one in for_hub.body["items"]] == ["/lab/vision"]
    assert (await harness.ask("GET", "/directory-groups", "ada")).status == 403
    stale = body | {"expected_version": 7}
    again = await harness.ask("PUT", "/directory-groups?group=/lab/vision", "root", json=stale)
    assert again.status == 409
    gone = await harness.ask("DELETE", "/directory-groups?group=/lab/vision", "root")
    assert gone.status == 204
    assert (await harness.ask("DELETE", "/directory-groups?group=it", "root")).status == 404


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"projects": ["nowhere"]}, "projects"),
        ({"role": "viewer"}, "scope"),
        ({"scope": "project/vision"}, "role"),
        ({"role": "viewer", "scope": "project/nowhere"}, "scope"),
        ({"role": "administrator", "scope": "project/vision"}, "scope"),
        ({"role": "viewer", "scope": "galaxy"}, "scope"),
    ],
)
async def test_a_rule_that_cannot_count_is_refused(
    harness: ApiHarness, body: dict[str, Any], field: str
) -> None:
    wrong = await harness.ask("PUT", "/directory-groups?group=g", "root", json=body)
    assert wrong.status == 422
    assert [one["field"] for one in wrong.body["errors"]] == [field]


async def test_a_group_of_the_directory_brings_a_role(harness: ApiHarness) -> None:
    body = {"role": "viewer", "scope": "project/vision"}
    await harness.ask("PUT", "/directory-groups?group=lab", "root", json=body)
    rae = harness.identity.tokens["rae-token"]
    assert (await harness.ask("GET", "/workloads/vision/train-1", "rae")).status == 404
    harness.identity.tokens["rae-token"] = replace(rae, groups=frozenset({"directory-lab"}))
    assert (await harness.ask("GET", "/workloads/vision/train-1", "rae")).status == 200
    await harness.ask("DELETE", "/directory-groups?group=lab", "root")
    assert (await harness.ask("GET", "/workloads/vision/train-1", "rae")).status == 404


async def test_numbers_of_the_directory_are_kept_and_never_shared(harness: ApiHarness) -> None:
    own = {"uid": 2001, "gid": 3001, "gids": [3002, 27]}
    kept = await harness.ask("PUT", "/users/ada/identity", "spawner", json=own)
    assert kept.body["gids"] == [3002]
    assert (await harness.ask("GET", "/users/ada", "root")).body["posix"]["uid"] == 2001
    assert (await harness.ask("PUT", "/users/ada/identity", "root", json=own)).status == 403
    twin = await harness.ask("PUT", "/users/bea/identity", "spawner", json=own)
    assert "gives ada the uid 2001, too" in twin.body["problem"]
    root = await harness.ask("PUT", "/users/bea/identity", "spawner", json={"uid": 0, "gid": 1})
    assert root.status == 200
    assert (await harness.ask("GET", "/users/bea", "root")).body["posix"] is None
    system = await harness.ask("PUT", "/users/bea/identity", "spawner", json={"uid": 5, "gid": 5})
    assert "should be 1000 or larger" in system.body["problem"]
    found = await identities.of_users(harness.ledger, ["ada", "bea", "carl", "no/body"])
    assert {name: bool(one.problem) for name, one in found.items()} == {"ada": False, "bea": True}
    await harness.ask("DELETE", "/users/ada", "root")
    assert "ada" not in await identities.of_users(harness.ledger, ["ada"])


async def test_roles_of_who_is_removed_are_no_later_persons(harness: ApiHarness) -> None:
    for subject in ("dora", "ada"):
        rule = {"subject": subject, "role": "viewer", "scope": "project/vision"}
        assert (await harness.ask("POST", "/access-rules", "root", json=rule)).status == 201
    assert (await harness.ask("DELETE", "/users/dora", "root")).status == 204
    left = await harness.ask("GET", "/access-rules", "root")
    assert [one["subject"] for one in left.body["items"]] == ["ada"]
    told = await harness.ask("GET", "/audit?verb=delete&kind=User", "root")
    assert [one["name"] for one in told.body["items"]] == ["dora"]


async def test_a_project_that_is_not_there_changes_nothing(harness: ApiHarness) -> None:
    for projects in (["vision", "nowhere"], ["No Name"]):
        body = {"admin": True, "projects": projects}
        refused = await harness.ask("POST", "/users/bea/update", "root", json=body)
        assert (refused.status, refused.fields) == (422, {"projects": "unknown_project"})
        invited = await harness.ask("PUT", "/users/emil/invitation", "root", json=body)
        assert (invited.status, invited.fields) == (422, {"projects": "unknown_project"})
    assert (await harness.ask("GET", "/users/bea", "root")).body["admin"] is False
    assert (await harness.ask("GET", "/users/emil", "root")).status == 404
