"""The audit log over HTTP: what is told of, what is shown to whom, refusals, settings."""

import asyncio
import json
from typing import Any

import pytest

from carrel_scheduler.ledger.audit.contract import AuditFilter
from contract.api.service import ApiHarness, Reply

RULES = {"quota": {"gpus": 3.0}}


async def entries(harness: ApiHarness, **where: Any) -> list[dict[str, Any]]:
    reply = await harness.ask("GET", "/audit", "root", params=where)
    assert reply.status == 200, reply.body
    return list(reply.body["items"])


async def submit(harness: ApiHarness, name: str, who: str = "ada", **more: Any) -> Reply:
    body = {"project": "vision", "name": name, "command": ["true"], **more}
    return await harness.ask("POST", "/workloads", who, json=body)


async def test_a_change_is_told_with_who_from_where_and_what(harness: ApiHarness) -> None:
    secret = {"environment": {"LEVEL": "hunter2"}, "secret_environment": {"TOKEN": "hunter2"}}
    headers = {
        "X-Forwarded-For": "1.2.3.4, 10.9.8.7",
        "X-Carrel-Channel": "cli",
        "User-Agent": "carrel-client",
    }
    body = {"project": "vision", "name": "job", "command": ["true"], **secret}
    made = await harness.ask("POST", "/workloads", "ada", json=body, headers=headers)
    assert made.status == 201, made.body
    [told] = await entries(harness, name="job")
    assert (told["user"], told["verb"], told["kind"]) == ("ada", "create", "Workload")
    assert (told["scope"], told["uid"]) == ("project/vision", made.body["uid"])
    assert (told["address"], told["channel"], told["agent"]) == ("10.9.8.7", "cli", "carrel-client")
    assert told["operation"] == "create_workload"
    assert told["after"]["command"] == ["true"]
    assert "hunter2" not in json.dumps(told)


async def test_only_changed_fields_are_told(harness: ApiHarness) -> None:
    await harness.ask("PUT", "/departments/sciences", "root", json=RULES)
    await harness.ask("PUT", "/departments/sciences", "root", json={**RULES, "rank": 2})
    changed, made = await entries(harness, kind="Department")
    assert (made["verb"], made["scope"]) == ("create", "department/sciences")
    assert changed["before"] == {"rank": 0}
    assert changed["after"] == {"rank": 2}


async def test_what_changes_no_object_is_told_too(harness: ApiHarness) -> None:
    await harness.ask("PUT", "/projects/vision/members/carl", "root")
    await harness.ask("DELETE", "/projects/vision/members/carl", "root")
    removed, added = await entries(harness, project="vision", user="root")
    assert (added["verb"], added["after"]) == ("add_member", {"user": "carl"})
    assert (removed["verb"], removed["kind"], removed["name"]) == (
        "remove_member",
        "Project",
        "vision",
    )


async def test_reading_and_dry_runs_are_not_told(harness: ApiHarness) -> None:
    before = await entries(harness)
    await harness.ask("GET", "/workloads", "ada")
    body = {"project": "vision", "name": "maybe", "command": ["true"]}
    assert (await harness.ask("POST", "/workloads?dry_run=true", "ada", json=body)).status == 200
    assert await entries(harness) == before


async def test_files_that_are_read_from_a_task_are_told_of(harness: ApiHarness) -> None:
    await harness.ask("GET", "/workloads/vision/train-1/files?path=/tmp/x", "ada")
    told = (await entries(harness, name="train-1"))[0]
    assert (told["verb"], told["after"]) == ("read_task_files", {"path": "/tmp/x"})


async def until_told(harness: ApiHarness, outcome: str, least: int = 1) -> list[Any]:
    async with asyncio.timeout(120):
        while True:
            found = list(await harness.ledger.audit.read(AuditFilter(outcome=outcome)))
            if len(found) >= least:
                return found
            await asyncio.sleep(0.05)


async def test_refusals_are_counted_not_listed(harness: ApiHarness) -> None:
    asked = [harness.ask("GET", "/workloads", "unknown-token-x") for _ in range(5)]
    asked += [harness.ask("GET", "/faults", "ada") for _ in range(30)]
    answers = await asyncio.gather(*asked)
    assert sorted(one.status for one in answers) == [401] * 5 + [403] * 30
    told = await until_told(harness, "refused", 2)
    signin, refused = sorted(told[:2], key=lambda one: str(one.user))
    assert (refused.user, refused.operation, refused.reason) == (
        "ada",
        "read_faults",
        "missing_permission",
    )
    # What comes after the first writing is counted for the next.
    assert 1 < refused.count <= 30
    assert 1 < signin.count <= 5
    assert (signin.user, signin.verb, signin.reason) == ("", "sign-in", "unauthenticated")


async def test_pages_follow_each_other(harness: ApiHarness) -> None:
    for number in range(5):
        await submit(harness, f"job-{number}")
    first = await harness.ask("GET", "/audit?user=ada&limit=2", "root")
    assert [one["name"] for one in first.body["items"]] == ["job-4", "job-3"]
    more = await harness.ask("GET", f"/audit?user=ada&limit=3&after={first.body['next']}", "root")
    assert [one["name"] for one in more.body["items"]] == ["job-2", "job-1", "job-0"]
    assert more.body["next"] == ""
    oldest = await harness.ask("GET", "/audit?user=ada&order=oldest&limit=1", "root")
    assert oldest.body["items"][0]["name"] == "job-0"


async def test_a_department_has_its_projects(harness: ApiHarness) -> None:
    await harness.ask("PUT", "/departments/arts", "root", json=RULES)
    await harness.ask("PATCH", "/projects/speech", "root", json={"department": "arts"})
    await submit(harness, "job")
    told = await entries(harness, department="arts")
    assert {one["scope"] for one in told} == {"department/arts", "project/speech"}


@pytest.mark.parametrize("path", ["/audit", "/audit/verification", "/audit/settings"])
async def test_others_than_administrators_see_nothing(harness: ApiHarness, path: str) -> None:
    assert (await harness.ask("GET", path, "ada")).status == 403


async def test_the_chain_is_verified(harness: ApiHarness) -> None:
    await submit(harness, "job")
    found = await harness.ask("GET", "/audit/verification", "root")
    assert (found.body["ok"], found.body["entries"]) == (True, 1)
    assert found.body["head"]["seq"] == 1


async def test_settings_are_checked_kept_and_told(harness: ApiHarness) -> None:
    assert (await harness.ask("GET", "/audit/settings", "root")).body["retention_days"] is None
    wanted = {"retention_days": 90, "syslog": "udp://log.example:514"}
    assert (await harness.ask("PUT", "/audit/settings", "root", json=wanted)).body == wanted
    assert (await harness.ask("GET", "/audit/settings", "root")).body == wanted
    assert (await entries(harness))[0]["after"] == wanted
    for wrong in ("file:///etc/passwd", "udp://host", "udp://host:0", "tcp://a b:1"):
        refused = await harness.ask("PUT", "/audit/settings", "root", json={"syslog": wrong})
        assert refused.status == 422, wrong


async def test_the_hub_reports_sign_ins(harness: ApiHarness) -> None:
    event = {"at": harness.clock(), "verb": "sign-in", "user": "ada", "name": "ada"}
    failed = {**event, "user": "", "outcome": "refused", "reason": "wrong password"}
    body = {"items": [event, failed]}
    assert (await harness.ask("POST", "/audit/events", "ada", json=body)).status == 403
    assert (await harness.ask("POST", "/audit/events", "spawner", json=body)).status == 204
    refused, done = await entries(harness, verb="sign-in", name="ada")
    assert (done["user"], done["channel"], done["scope"]) == ("ada", "hub", "user/ada")
    assert (refused["outcome"], refused["reason"]) == ("refused", "wrong password")
