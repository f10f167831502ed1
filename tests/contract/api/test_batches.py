"""Many workloads in one request: each for itself, safe to repeat, of projects that one is in."""

import asyncio
from typing import Any

import pytest

from carrel_scheduler.api.models.workloads import MOST_ITEMS
from carrel_schema.objects import Workload
from contract.api.service import ApiHarness, Reply

PATH = "/workloads:batch"


def item(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "project": "vision", "command": ["true"], **more}


async def post(harness: ApiHarness, *items: dict[str, Any], who: str = "ada") -> Reply:
    return await harness.ask("POST", PATH, who, json={"items": list(items)})


async def count(harness: ApiHarness) -> int:
    return len((await harness.ledger.list(Workload)).items)


async def test_all_are_stored_with_rows_secrets_and_labels(harness: ApiHarness) -> None:
    first = item("many-1", secret_environment={"KEY": "very-secret"}, labels={"team": "a"})
    reply = await post(harness, first, item("many-2", gpus=1))
    assert reply.status == 200, reply.body
    assert [(one["name"], one["status"]) for one in reply.body["items"]] == [
        ("many-1", 201),
        ("many-2", 201),
    ]
    assert b"very-secret" not in reply.raw
    stored = [await harness.workload("vision", name) for name in ("many-1", "many-2")]
    assert [(one["uid"], one["resource_version"]) for one in reply.body["items"]] == [
        (one.meta.uid, one.meta.resource_version) for one in stored
    ]
    assert stored[0].spec.user == stored[0].meta.created_by == "ada"
    assert await harness.ledger.secrets(stored[0].meta.uid) == {"KEY": "very-secret"}
    found = await harness.ledger.list(Workload, labels={"team": "a"})
    assert [one.meta.name for one in found.items] == ["many-1"]
    for one in stored:
        rows = await harness.ledger.transitions(workload_uid=one.meta.uid)
        assert [(row.to_phase, row.workload) for row in rows] == [("pending", one.meta.name)]


async def test_a_taken_name_is_refused_for_itself(harness: ApiHarness) -> None:
    reply = await post(harness, item("new"), item("train-1"))
    made, refused = reply.body["items"]
    assert made["status"] == 201
    assert (refused["status"], refused["problem"]["code"]) == (409, "already_exists")
    assert refused["uid"] is None
    assert (await harness.workload("vision", "train-1")).meta.uid == "uid-vision-train-1"


async def test_repeating_a_batch_creates_nothing_twice(harness: ApiHarness) -> None:
    first = await post(harness, item("many-1"), item("many-2"))
    again = await post(harness, item("many-1"), item("many-2"), item("many-3"))
    assert [one["status"] for one in again.body["items"]] == [200, 200, 201]
    assert [one["uid"] for one in again.body["items"]][:2] == [
        one["uid"] for one in first.body["items"]
    ]
    other = await post(harness, item("many-1", gpus=1))
    assert other.body["items"][0]["status"] == 409
    colleague = await post(harness, item("many-1"), who="bea")
    assert colleague.body["items"][0]["status"] == 409


async def test_the_same_batch_at_the_same_time_makes_each_once(harness: ApiHarness) -> None:
    before = await count(harness)
    items = [item(f"many-{number}") for number in range(50)]
    replies = await asyncio.gather(*(post(harness, *items) for _ in range(4)))
    statuses = [[one["status"] for one in reply.body["items"]] for reply in replies]
    for number in range(50):
        assert sorted(found[number] for found in statuses) == [200, 200, 200, 201]
    assert await count(harness) == before + 50


async def test_what_can_never_run_is_refused_for_itself(harness: ApiHarness) -> None:
    reply = await post(harness, item("odd", priority="urgent"), item("fine"))
    assert [one["status"] for one in reply.body["items"]] == [422, 201]
    assert reply.body["items"][0]["problem"]["code"] == "unknown_priority"
    reserved = await post(harness, item("mine", user="bea"))
    assert reserved.body["items"][0]["problem"]["code"] == "spawner_only"


@pytest.mark.parametrize(
    ("who", "project"), [("ada", "speech"), ("carl", "vision"), ("ada", "nowhere")]
)
async def test_one_foreign_project_refuses_all(harness: ApiHarness, who: str, project: str) -> None:
    before = await count(harness)
    own = "vision" if who == "ada" else "speech"
    reply = await post(harness, item("a", project=own), item("b", project=project), who=who)
    assert (reply.status, reply.code) == (403, "not_a_member")
    assert await count(harness) == before


async def test_an_unknown_project_refuses_all(harness: ApiHarness) -> None:
    names = [f"nowhere-{number}" for number in range(9)]
    for some in (names[:1], names):
        reply = await post(harness, *(item("a", project=name) for name in some), who="root")
        assert (reply.status, reply.code) == (422, "unknown_project")
    no_name = await post(harness, item("a", template="small") | {"project": "t*"}, who="root")
    assert (no_name.status, list(no_name.fields)) == (422, ["items.0.project"])


async def test_what_is_wrong_in_form_refuses_all_and_names_the_item(harness: ApiHarness) -> None:
    before = await count(harness)
    wrong: list[tuple[list[dict[str, Any]], str, str]] = [
        ([], "too_short", "items"),
        ([item("a"), item("b", gpus=-1)], "too_small", "items.1.gpus"),
        ([item("a"), item("a")], "name_twice", "body"),
        ([{"name_prefix": "a", "project": "vision", "command": ["x"]}], "name_required", "body"),
        ([item(f"a-{number}") for number in range(MOST_ITEMS + 1)], "too_long", "items"),
    ]
    for items, code, field in wrong:
        reply = await post(harness, *items)
        assert (reply.status, reply.code) == (422, code), reply.body
        assert field in reply.fields
    assert await count(harness) == before


async def test_a_refused_secret_is_not_repeated(harness: ApiHarness) -> None:
    reply = await post(harness, item("a", secret_environment={"1KEY": "very-secret"}))
    assert reply.status == 422
    assert b"very-secret" not in reply.raw
    reply = await post(harness, item("a", secret_environment={"KEY": "very-secret\x00"}))
    assert reply.status == 422
    assert b"very-secret" not in reply.raw


async def test_the_most_items_at_once(harness: ApiHarness) -> None:
    before = await count(harness)
    reply = await post(harness, *(item(f"many-{number}") for number in range(MOST_ITEMS)))
    assert {one["status"] for one in reply.body["items"]} == {201}
    assert await count(harness) == before + MOST_ITEMS
