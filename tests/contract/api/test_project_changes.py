"""Several projects changed by one request: all of them or none."""

from typing import Any

import pytest

from carrel_scheduler.ledger.store import VersionConflict
from carrel_schema.objects import Project
from contract.api.service import ApiHarness

BOTH = ["vision", "speech"]


def asked(**changes: Any) -> dict[str, Any]:
    return {"projects": BOTH, "changes": changes}


async def quotas(harness: ApiHarness) -> list[Any]:
    found = [await harness.ask("GET", f"/projects/{name}", "root") for name in BOTH]
    return [one.body["quota"]["gpus"] for one in found]


async def test_all_of_them_are_changed_and_a_dry_run_changes_none(harness: ApiHarness) -> None:
    before = await quotas(harness)
    body = asked(quota={"gpus": 0}, weight=None)
    told = await harness.ask("POST", "/project-changes?dry_run=true", "root", json=body)
    assert (told.status, told.body["would_start"]) == (200, ["vision/a"])
    assert len(harness.live.previewed) == 2
    assert await quotas(harness) == before
    done = await harness.ask("POST", "/project-changes", "root", json=body)
    assert [one["name"] for one in done.body["items"]] == BOTH
    assert await quotas(harness) == [0.0, 0.0]


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (asked(quota={"gpus": -1}), 422, None),
        (asked(colour="red"), 422, "unknown_field"),
        (asked(colour={"deep": {"deeper": 1}}), 422, "unknown_field"),
        (asked(quota=3), 422, None),
        (asked(), 422, "invalid"),
        (asked(resource_version=1), 422, "invalid"),
        ({"projects": ["vision", "vision"], "changes": {"rank": 1}}, 422, "invalid"),
        ({"projects": ["vision", "nowhere"], "changes": {"rank": 1}}, 404, "not_found"),
        (asked(department="nowhere"), 422, "unknown_department"),
    ],
)
async def test_what_is_wrong_for_one_changes_none(
    harness: ApiHarness, body: dict[str, Any], status: int, code: str | None
) -> None:
    before = [await harness.ledger.get(Project, name) for name in BOTH]
    refused = await harness.ask("POST", "/project-changes", "root", json=body)
    assert refused.status == status, refused.body
    if code is not None:
        assert refused.body["code"] == code
    for error in refused.body["errors"]:
        assert error["field"].partition(".")[0] in ("projects", "changes")
    assert [await harness.ledger.get(Project, name) for name in BOTH] == before


async def test_where_one_cannot_be_written_the_others_get_their_rules_back(
    harness: ApiHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, update = await quotas(harness), harness.ledger.update

    async def refusing(project: Any) -> Any:
        if project.meta.name == "speech":
            raise VersionConflict("somebody was faster")
        return await update(project)

    monkeypatch.setattr(harness.ledger, "update", refusing)
    body = asked(quota={"gpus": 0})
    refused = await harness.ask("POST", "/project-changes", "root", json=body)
    assert (refused.status, refused.body["code"]) == (409, "conflict")
    assert await quotas(harness) == before


async def test_each_project_takes_the_permission(harness: ApiHarness) -> None:
    rule = {"subject": "rae", "role": "editor", "scope": "department/arts"}
    await harness.ask("PUT", "/departments/arts", "root", json={})
    await harness.ask("PATCH", "/projects/vision", "root", json={"department": "arts"})
    await harness.ask("POST", "/access-rules", "root", json=rule)
    alone = {"projects": ["vision"], "changes": {"rank": 1}}
    assert (await harness.ask("POST", "/project-changes", "rae", json=alone)).status == 200
    refused = await harness.ask("POST", "/project-changes", "rae", json=asked(rank=2))
    assert (refused.status, refused.code) == (403, "missing_permission")
    assert (await harness.ask("GET", "/projects/vision", "root")).body["rank"] == 1
