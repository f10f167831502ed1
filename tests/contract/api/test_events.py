"""Server-sent events: what is, what changes, who sees it, and how a stream ends."""

import asyncio

import pytest

from carrel_scheduler.workloads.contract import LiveEvent
from carrel_schema.history import Report
from carrel_schema.objects import Workload
from contract.api.service import ROOT, TIMEOUT_SECONDS, Desk
from contract.api.streams import listening


def event(workload: Workload, kind: str = "workload", report: Report | None = None) -> LiveEvent:
    version = workload.meta.resource_version
    return LiveEvent(type=kind, version=version, workload=workload, report=report)


async def test_the_stream_begins_with_what_is_and_goes_on_with_what_changes(desk: Desk) -> None:
    await desk.add("vision", "old", "ada")
    await desk.set_status("vision", "old", phase="succeeded")
    async with listening(desk, "/events", "ada") as stream:
        assert stream.response.content_type == "text/event-stream"
        assert await stream.names(2) == ["vision/train-1", "vision/desk"]
        changed = await desk.set_status("vision", "train-1", phase="preempting")
        desk.live.publish(event(changed))
        message = await stream.next()
        assert message is not None
        assert (message.event, message.id) == ("workload", changed.meta.resource_version)
        assert message.data["status"]["phase"] == "preempting"
        report = Report(at=1.0, step=3, metrics={"loss": 0.5})
        desk.live.publish(event(changed, "report", report))
        message = await stream.next()
        assert message is not None
        assert (message.event, message.data["report"]["step"]) == ("report", 3)
        desk.live.publish(event(changed, "deleted"))


async def test_what_the_snapshot_says_is_not_said_again(desk: Desk) -> None:
    async with listening(desk, "/events?kind=training", "ada") as stream:
        known = await desk.workload("vision", "train-1")
        assert await stream.names(1) == ["vision/train-1"]
        desk.live.publish(event(known))
        news = await desk.set_status("vision", "train-1", queue_position=7)
        desk.live.publish(event(news))
        message = await stream.next()
        assert message is not None
        assert message.data["status"]["queue_position"] == 7


async def test_nobody_hears_of_foreign_projects_or_reads_foreign_names(desk: Desk) -> None:
    async with listening(desk, "/events", "ada") as stream:
        assert await stream.names(2) == ["vision/train-1", "vision/desk"]
        desk.live.publish(event(await desk.set_status("speech", "train-1", attempt=1)))
        desk.live.publish(event(await desk.set_status("vision", "desk", attempt=1)))
        message = await stream.next()
        assert message is not None
        assert (message.data["project"], message.data["name"]) == ("vision", "desk")
        assert "speech-secret" not in str(message.data)
    async with listening(desk, "/events", "root") as stream:
        assert len(set(await stream.names(4))) == 4


async def test_a_returning_listener_is_told_what_changed_meanwhile(desk: Desk) -> None:
    before = (await desk.workload("vision", "desk")).meta.resource_version
    ended = await desk.set_status("vision", "train-1", phase="succeeded")
    after = {"Last-Event-ID": str(max(before, ended.meta.resource_version - 1))}
    async with listening(desk, "/events?project=vision", "ada", after) as stream:
        message = await stream.next()
        assert message is not None
        assert (message.data["name"], message.data["status"]["phase"]) == ("train-1", "succeeded")


async def test_the_stream_of_one_workload_tells_its_state_even_at_rest(desk: Desk) -> None:
    await desk.set_status("vision", "train-1", phase="failed")
    async with listening(desk, "/workloads/vision/train-1/events", "bea") as stream:
        message = await stream.next()
        assert message is not None
        assert message.data["status"]["phase"] == "failed"
        desk.live.publish(event(await desk.set_status("vision", "desk", attempt=3)))
        desk.live.publish(event(await desk.set_status("vision", "train-1", attempt=9)))
        message = await stream.next()
        assert message is not None
        assert message.data["status"]["attempt"] == 9


async def test_the_stream_of_a_workload_that_is_deleted_meanwhile_ends_in_order(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    get = desk.ledger.get_by_uid

    async def too_late(kind: type[Workload], uid: str) -> Workload:
        await desk.ledger.delete(Workload, "train-1", "vision")
        return await get(kind, uid)

    monkeypatch.setattr(desk.ledger, "get_by_uid", too_late)
    async with listening(desk, "/workloads/vision/train-1/events", "bea") as stream:
        assert await stream.next() is None
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


async def test_silence_is_filled_and_a_revoked_token_ends_the_stream(desk: Desk) -> None:
    async with listening(desk, "/events", "ada") as stream:
        await stream.names(2)
        del desk.identity.tokens["ada-token"]
        desk.clock.now += 20
        assert await stream.next() is None
        assert stream.comments >= 1
    await desk.until(lambda: not desk.live.subscriptions)


async def test_an_ended_membership_ends_what_is_heard(desk: Desk) -> None:
    async with listening(desk, "/events", "ada") as stream:
        await stream.names(2)
        desk.identity.tokens["ada-token"] = desk.identity.tokens["carl-token"]
        desk.live.publish(event(await desk.set_status("vision", "desk", attempt=5)))
        desk.live.publish(event(await desk.set_status("speech", "desk", attempt=6)))
        assert await stream.names(1) == ["speech/desk"]


async def test_a_hub_that_is_down_is_borne_for_a_while_only(desk: Desk) -> None:
    async with listening(desk, "/events", "ada") as stream:
        await stream.names(2)
        desk.identity.down = True
        desk.clock.now += 0.1
        desk.live.publish(event(await desk.set_status("vision", "desk", attempt=5)))
        assert await stream.names(1) == ["vision/desk"]
        desk.clock.now += 1
        assert await stream.next() is None


async def test_a_listener_that_is_too_slow_loses_its_stream(desk: Desk) -> None:
    async with listening(desk, "/events", "ada") as stream:
        await stream.names(2)
        desk.live.publish(None)
        assert await stream.next() is None


async def test_listeners_that_go_away_leave_nothing_behind(desk: Desk) -> None:
    async with listening(desk, "/events", "ada") as stream:
        await stream.names(2)
        assert len(desk.live.subscriptions) == 1
    await desk.until(lambda: not desk.live.subscriptions)


async def test_one_user_holds_a_bounded_number_of_streams(desk: Desk) -> None:
    headers = {"Authorization": "token ada-token"}
    opened = [await desk.session.get(f"{desk.url}{ROOT}/events", headers=headers) for _ in range(5)]
    sixth = await desk.ask("GET", "/events")
    assert (sixth.status, sixth.code) == (429, "too_many_streams")
    assert (await desk.ask("GET", "/workloads/vision/train-1/logs")).status == 429
    for response in opened:
        response.close()
    await desk.until(lambda: not desk.live.subscriptions)
    async with asyncio.timeout(TIMEOUT_SECONDS), listening(desk, "/events", "ada") as stream:
        assert await stream.names(1) == ["vision/train-1"]
