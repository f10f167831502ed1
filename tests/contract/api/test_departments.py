"""Departments: made, named by projects, kept while they are."""

from contract.api.service import ApiHarness

RULES = {"quota": {"gpus": 3.0}, "limit": {"gpus": 4.0}, "rank": 2}


async def test_put_makes_and_replaces(harness: ApiHarness) -> None:
    made = await harness.ask("PUT", "/departments/sciences", "root", json=RULES)
    assert made.status == 200
    assert made.body["quota"]["gpus"] == 3.0
    again = await harness.ask("PUT", "/departments/sciences", "root", json={"weight": 5})
    assert (again.body["rank"], again.body["weight"]) == (0, 5)
    assert again.body["limit"]["gpus"] is None
    listed = await harness.ask("GET", "/departments", "root")
    assert [one["name"] for one in listed.body["items"]] == ["sciences"]


async def test_a_project_belongs_to_one_that_is_there(harness: ApiHarness) -> None:
    unknown = await harness.ask("PATCH", "/projects/vision", "root", json={"department": "arts"})
    assert unknown.status == 422
    assert unknown.body["errors"][0]["code"] == "unknown_department"
    await harness.ask("PUT", "/departments/arts", "root", json={})
    moved = await harness.ask("PATCH", "/projects/vision", "root", json={"department": "arts"})
    assert moved.body["department"] == "arts"
    kept = await harness.ask("PATCH", "/projects/vision", "root", json={"description": "x"})
    assert kept.body["department"] == "arts"
    refused = await harness.ask("DELETE", "/departments/arts", "root")
    assert (refused.status, refused.body["code"]) == (409, "department_in_use")
    left = await harness.ask("PATCH", "/projects/vision", "root", json={"department": None})
    assert left.body["department"] is None
    assert (await harness.ask("DELETE", "/departments/arts", "root")).status == 204
    assert (await harness.ask("DELETE", "/departments/arts", "root")).status == 404


async def test_limits_hold_quotas(harness: ApiHarness) -> None:
    wrong = await harness.ask(
        "PUT", "/departments/sciences", "root", json={"quota": {"gpus": 2}, "limit": {"gpus": 1}}
    )
    assert wrong.body["errors"][0]["code"] == "limit_below_quota"


async def test_admins_are_told_what_does_not_fit(harness: ApiHarness) -> None:
    await harness.ask("PUT", "/departments/arts", "root", json={"quota": {"gpus": 1}})
    await harness.ask(
        "PATCH", "/projects/vision", "root", json={"department": "arts", "quota": {"gpus": 2}}
    )
    told = await harness.ask("GET", "/quota-findings", "root")
    [found] = [one for one in told.body["items"] if one["name"] == "arts"]
    assert (found["kind"], found["field"], found["severity"]) == (
        "department",
        "quota.gpus",
        "warning",
    )
    assert "are guaranteed 2 GPUs and the department 1" in found["sentence"]
    assert (await harness.ask("GET", "/quota-findings", "ada")).status == 403
