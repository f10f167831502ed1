"""Server-sent events: what is, what changes, who sees it, and how a stream ends."""

import asyncio

import pytest

from carrel_scheduler.workloads.contract import LiveEvent
from carrel_schema.history import Report
from carrel_schema.objects import Workload
from contract.api.service import ROOT, TIMEOUT_SECONDS, ApiHarness
from contract.api.streams import listening


def event(workload: Workload, kind: str = "workload", report: Report | None = None) -> LiveEvent:
    version = workload.meta.resource_version
    return LiveEvent(type=kind, version=version, workload=workload, report=report)


async def test_the_stream_begins_with_what_is_and_goes_on_with_what_changes(
    harness: ApiHarness,
) -> None:
    await harness.add("vision", "old", "ada")
    await harness.set_status("vision", "old", phase="succeeded")
    async with listening(harness, "/events", "ada") as stream:
        assert stream.response.content_type == "text/event-stream"
        assert await stream.names(2) == ["vision/train-1", "vision/desk"]
        changed = await harness.set_status("vision", "train-1", phase="preempting")
        harness.live.publish(event(changed))
        message = await stream.next()
        assert message is not None
        assert (message.event, message.id) == ("workload", changed.meta.resource_version)
        assert message.data["status"]["phase"] == "preempting"
        report = Report(at=1.0, step=3, metrics={"loss": 0.5})
        harness.live.publish(event(changed, "report", report))
        message = await stream.next()
        assert message is not None
        assert (message.event, message.data["report"]["step"]) == ("report", 3)
        harness.live.publish(event(changed, "deleted"))


async def test_what_the_snapshot_says_is_not_said_again(harness: ApiHarness) -> None:
    async with listening(harness, "/events?kind=training", "ada") as stream:
        known = await harness.workload("vision", "train-1")
        assert await stream.names(1) == ["vision/train-1"]
        harness.live.publish(event(known))
        news = await harness.set_status("vision", "train-1", queue_position=7)
        harness.live.publish(event(news))
        message = await stream.next()
        assert message is not None
        assert message.data["status"]["queue_position"] == 7


async def test_places_in_the_queue_are_the_present_ones(harness: ApiHarness) -> None:
    waits = await harness.set_status("vision", "train-1", phase="pending", queue_position=7)
    harness.live.places[waits.meta.uid] = 3
    async with listening(harness, "/events?kind=training", "ada") as stream:
        message = await stream.next()
        assert message is not None
        assert message.data["status"]["queue_position"] == 3
        harness.live.places[waits.meta.uid] = 2
        harness.live.publish(event(await harness.set_status("vision", "train-1", attempt=2)))
        message = await stream.next()
        assert message is not None
        assert message.data["status"]["queue_position"] == 2


async def test_a_place_that_moves_without_a_change_is_told(harness: ApiHarness) -> None:
    for name in ("train-1", "desk"):
        waits = await harness.set_status("vision", name, phase="pending")
        harness.live.places[waits.meta.uid] = 7
    uid = (await harness.workload("vision", "train-1")).meta.uid
    async with listening(harness, "/events", "ada") as stream:
        assert await stream.names(2) == ["vision/train-1", "vision/desk"]
        version = (await harness.workload("vision", "train-1")).meta.resource_version
        for place in (6, 2):
            harness.live.places[uid] = place
            message = await stream.next()
            assert message is not None
            assert (message.event, message.id, message.data["name"]) == (
                "workload", version, "train-1"
            )  # fmt: skip
            assert message.data["status"]["queue_position"] == place
        running = await harness.set_status("vision", "train-1", phase="running")
        harness.live.publish(event(running))
        harness.live.places[uid] = 1
        harness.live.publish(event(await harness.set_status("vision", "desk", attempt=3)))
        told = [await stream.next() for _ in range(2)]
        assert [one and (one.data["name"], one.data["status"]["phase"]) for one in told] == [
            ("train-1", "running"), ("desk", "pending")
        ]  # fmt: skip


async def test_nobody_hears_of_foreign_projects_or_reads_foreign_names(harness: ApiHarness) -> None:
    async with listening(harness, "/events", "ada") as stream:
        assert await stream.names(2) == ["vision/train-1", "vision/desk"]
        harness.live.publish(event(await harness.set_status("speech", "train-1", attempt=1)))
        harness.live.publish(event(await harness.set_status("vision", "desk", attempt=1)))
        message = await stream.next()
        assert message is not None
        assert (message.data["project"], message.data["name"]) == ("vision", "desk")
        assert "speech-secret" not in str(message.data)
    async with listening(harness, "/events", "root") as stream:
        assert len(set(await stream.names(4))) == 4


async def test_a_returning_listener_is_told_what_changed_meanwhile(harness: ApiHarness) -> None:
    before = (await harness.workload("vision", "desk")).meta.resource_version
    ended = await harness.set_status("vision", "train-1", phase="succeeded")
    after = {"Last-Event-ID": str(max(before, ended.meta.resource_version - 1))}
    async with listening(harness, "/events?project=vision", "ada", after) as stream:
        message = await stream.next()
        assert message is not None
        assert (message.data["name"], message.data["status"]["phase"]) == ("train-1", "succeeded")


async def test_the_stream_of_one_workload_tells_its_state_even_at_rest(harness: ApiHarness) -> None:
    await harness.set_status("vision", "train-1", phase="failed")
    async with listening(harness, "/workloads/vision/train-1/events", "bea") as stream:
        message = await stream.next()
        assert message is not None
        assert message.data["status"]["phase"] == "failed"
        harness.live.publish(event(await harness.set_status("vision", "desk", attempt=3)))
        harness.live.publish(event(await harness.set_status("vision", "train-1", attempt=9)))
        message = await stream.next()
        assert message is not None
        assert message.data["status"]["attempt"] == 9


async def test_the_stream_of_a_workload_that_is_deleted_meanwhile_ends_in_order(
    harness: ApiHarness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    get = harness.ledger.get_by_uid

    async def too_late(kind: type[Workload], uid: str) -> Workload:
        await harness.ledger.delete(Workload, "train-1", "vision")
        return await get(kind, uid)

    monkeypatch.setattr(harness.ledger, "get_by_uid", too_late)
    async with listening(harness, "/workloads/vision/train-1/events", "bea") as stream:
        assert await stream.next() is None
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


async def test_silence_is_filled_and_a_revoked_token_ends_the_stream(harness: ApiHarness) -> None:
    async with listening(harness, "/events", "ada") as stream:
        await stream.names(2)
        del harness.identity.tokens["ada-token"]
        harness.clock.now += 20
        assert await stream.next() is None
        assert stream.comments >= 1
    await harness.until(lambda: not harness.live.subscriptions)


async def test_an_ended_membership_ends_what_is_heard(harness: ApiHarness) -> None:
    async with listening(harness, "/events", "ada") as stream:
        await stream.names(2)
        harness.identity.tokens["ada-token"] = harness.identity.tokens["carl-token"]
        harness.live.publish(event(await harness.set_status("vision", "desk", attempt=5)))
        harness.live.publish(event(await harness.set_status("speech", "desk", attempt=6)))
        assert await stream.names(1) == ["speech/desk"]


async def test_a_hub_that_is_down_is_borne_for_a_while_only(harness: ApiHarness) -> None:
    async with listening(harness, "/events", "ada") as stream:
        await stream.names(2)
        harness.identity.down = True
        harness.clock.now += 0.1
        harness.live.publish(event(await harness.set_status("vision", "desk", attempt=5)))
        assert await stream.names(1) == ["vision/desk"]
        harness.clock.now += 1
        assert await stream.next() is None


async def test_a_listener_that_is_too_slow_loses_its_stream(harness: ApiHarness) -> None:
    async with listening(harness, "/events", "ada") as stream:
        await stream.names(2)
        harness.live.publish(None)
        assert await stream.next() is None


async def test_listeners_that_go_away_leave_nothing_behind(harness: ApiHarness) -> None:
    async with listening(harness, "/events", "ada") as stream:
        await stream.names(2)
        assert len(harness.live.subscriptions) == 1
    await harness.until(lambda: not harness.live.subscriptions)


async def test_one_user_holds_a_bounded_number_of_streams(harness: ApiHarness) -> None:
    headers = {"Authorization": "token ada-token"}
    opened = [
        await harness.session.get(f"{harness.url}{ROOT}/events", headers=headers) for _ in range(5)
    ]
    sixth = await harness.ask("GET", "/events")
    assert (sixth.status, sixth.code) == (429, "too_many_streams")
    assert (await harness.ask("GET", "/workloads/vision/train-1/logs")).status == 429
    for response in opened:
        response.close()
    await harness.until(lambda: not harness.live.subscriptions)
    async with asyncio.timeout(TIMEOUT_SECONDS), listening(harness, "/events", "ada") as stream:
        assert await stream.names(1) == ["vision/train-1"]
