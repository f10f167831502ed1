"""Logs: pieces as they come, back-pressure, and ends on both sides."""

import asyncio

import aiohttp
import pytest

from carrel_scheduler.workloads.contract import LiveEvent
from carrel_scheduler.workloads.controllers.contract import OWNER_LABEL
from carrel_schema.objects import TaskInfo, Workload, WorkloadStatus
from carrel_schema.sections import ExperimentSpec, Parameter
from contract.api.fakes import person
from contract.api.service import ROOT, TIMEOUT_SECONDS, ApiHarness

PATH = "/workloads/vision/train-1/logs"


async def test_a_log_is_text(harness: ApiHarness) -> None:
    reply = await harness.ask("GET", f"{PATH}?tail=10&timestamps=true")
    assert (reply.status, reply.raw) == (200, b"one\ntwo\n")
    assert reply.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert harness.engine.asked == {"tail": 10, "follow": False, "timestamps": True}
    await harness.until(lambda: harness.engine.closed_logs == 1)


def _started(attempt: int = 0) -> WorkloadStatus:
    task = TaskInfo(index=0, attempt=attempt, node="node-1", started_at=2.0)
    return WorkloadStatus(phase="running", tasks=[task])


async def _search(harness: ApiHarness) -> Workload:
    """An experiment with a trial that runs, one that waits, and work that only says so."""
    section = ExperimentSpec(parameters={"x": Parameter(type="float", low=0.0, high=1.0)})
    status = WorkloadStatus(phase="running")
    owner = await harness.add(
        "vision", "search", "ada", kind="experiment", experiment=section, status=status
    )
    for name, more in (
        ("search-0", {"kind": "trial", "owner": owner.meta.uid, "status": _started()}),
        ("search-1", {"kind": "trial", "owner": owner.meta.uid}),
        ("stranger", {"owner": "uid-other", "status": _started()}),
    ):
        await harness.add("vision", name, "ada", labels={OWNER_LABEL: "search"}, **more)
    return owner


async def test_the_log_of_an_experiment_is_that_of_its_trials(harness: ApiHarness) -> None:
    owner = await _search(harness)
    harness.engine.pieces = [f"2026-01-01T00:00:0{n}.000000Z {n}\n".encode() for n in (1, 2)]
    printed = b"[search-0] 1\n[search-0] 2\n"
    reply = await harness.ask("GET", "/workloads/vision/search/logs?index=all")
    assert reply.raw == printed
    harness.engine.followed_ends = True
    url = f"{harness.url}{ROOT}/workloads/vision/search/logs?index=all&follow=true"
    async with (
        asyncio.timeout(TIMEOUT_SECONDS),
        harness.session.get(url, headers={"Authorization": "token ada-token"}) as response,
    ):
        content = response.content
        assert await content.readexactly(len(printed)) == printed
        await harness.until(lambda: bool(harness.live.subscriptions))
        for attempt in (0, 0, 1):  # what is known begins once; what starts again is another log
            status = _started(attempt)
            part = await harness.set_status("vision", "search-1", tasks=status.tasks)
            harness.live.publish(LiveEvent(type="workload", version=1, workload=part))
        again = (await content.readexactly(2 * len(printed))).splitlines()
        assert sorted(again) == [b"[search-1] 1"] * 2 + [b"[search-1] 2"] * 2
        owner = await harness.set_status("vision", "search", phase="succeeded")
        harness.live.publish(LiveEvent(type="workload", version=2, workload=owner))
        assert await content.read() == b""
    await harness.until(lambda: not harness.live.subscriptions)


async def test_an_experiment_without_trials_has_no_log(harness: ApiHarness) -> None:
    await harness.add("vision", "search", "ada", kind="experiment")
    reply = await harness.ask("GET", "/workloads/vision/search/logs?index=all")
    assert (reply.status, reply.code) == (404, "no_logs")


async def test_a_task_that_never_ran_has_no_log(harness: ApiHarness) -> None:
    reply = await harness.ask("GET", f"{PATH}?index=7")
    assert (reply.status, reply.code) == (404, "no_logs")


@pytest.mark.parametrize("pieces", [[b"one\n"], []])
async def test_following_ends_when_the_listener_goes_away(
    harness: ApiHarness, pieces: list[bytes]
) -> None:
    harness.engine.pieces = pieces
    headers = {"Authorization": "token ada-token"}
    url = f"{harness.url}{ROOT}{PATH}?follow=true"
    async with (
        asyncio.timeout(TIMEOUT_SECONDS),
        harness.session.get(url, headers=headers) as response,
    ):
        assert response.status == 200
        if pieces:
            assert await response.content.readany() == b"one\n"
        assert harness.engine.closed_logs == 0
    await harness.until(lambda: harness.engine.closed_logs == 1)


@pytest.mark.parametrize("how", ["revoked", "left"])
async def test_following_ends_with_the_right_to_it(harness: ApiHarness, how: str) -> None:
    harness.engine.pieces = [b"one\n"]
    url = f"{harness.url}{ROOT}{PATH}?follow=true"
    async with (
        asyncio.timeout(TIMEOUT_SECONDS),
        harness.session.get(url, headers={"Authorization": "token bea-token"}) as response,
    ):
        assert await response.content.readany() == b"one\n"
        if how == "revoked":
            del harness.identity.tokens["bea-token"]
        else:
            harness.identity.tokens["bea-token"] = person("bea", "speech")
        with pytest.raises(aiohttp.ClientPayloadError):
            await response.content.read()
    await harness.until(lambda: harness.engine.closed_logs == 1)


async def test_a_listener_that_does_not_read_slows_the_source_down(harness: ApiHarness) -> None:
    harness.engine.endless = True
    headers = {"Authorization": "token ada-token"}
    async with harness.session.get(harness.url + ROOT + PATH, headers=headers) as response:
        assert response.status == 200
        made = -1
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while made != harness.engine.produced:
                made = harness.engine.produced
                await asyncio.sleep(0.2)
        # The buffers of both sockets are full, and nothing beyond them is made.
        assert made * 65_536 < 64 * 2**20
    await harness.until(lambda: harness.engine.closed_logs == 1)


async def test_a_log_that_breaks_does_not_look_complete(harness: ApiHarness) -> None:
    harness.engine.broken = True
    harness.engine.pieces = [b"x" * 2**20] * 4
    with pytest.raises(aiohttp.ClientPayloadError):
        await harness.ask("GET", PATH)
