"""Work that starts after other work, on a real scheduler."""

import asyncio

import pytest

from carrel.client import AsyncClient
from carrel.errors import ApiError
from contract.service.jobs import TIMEOUT_SECONDS, client, ended, submit

__all__ = ["client"]
WAIT = "until [ -e go ]; do sleep 0.05; done"


async def until(client: AsyncClient, name: str, word: str) -> None:
    """Wait until the reason of pending work says a word."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while True:
            status = (await client.get_workload("vision", name)).status
            assert status.phase == "pending"
            if status.reason is not None and word in status.reason.sentence:
                return
            await asyncio.sleep(0.05)


async def let_go(client: AsyncClient, name: str) -> None:
    """Have waiting work go on."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        async for event in client.events("vision", name):
            if event.workload.status.phase == "running":
                break
    async with await client.exec("vision", name, ["touch", "go"]) as terminal:
        while await terminal.read():
            pass


async def test_work_starts_when_what_it_waits_for_has_ended(client: AsyncClient) -> None:
    await submit(client, "prep", WAIT)
    await submit(client, "other", f"{WAIT}; exit 3", backoff_limit=0)
    await submit(client, "train", "true", after=[{"name": "prep"}])
    await submit(client, "report", "true",
                 after=[{"name": "train"}, {"name": "other", "condition": "any"}])  # fmt: skip
    await submit(client, "never", "true", after=[{"name": "other"}])
    search = {"parameters": {}, "completions": 1, "parallelism": 1}
    await submit(client, "sweep", "true", kind="experiment", experiment=search,
                 after=[{"name": "prep"}])  # fmt: skip
    await submit(client, "lost-sweep", "true", kind="experiment", experiment=search,
                 after=[{"name": "never"}])  # fmt: skip
    await submit(client, "gone", WAIT)
    await submit(client, "both", "true", after=[{"name": "prep"}, {"name": "gone"}])
    await submit(client, "anyway", "true", after=[{"name": "gone", "condition": "any"}])
    await until(client, "train", "Waits for `prep` to succeed.")
    await until(client, "report", "Waits for `train` to succeed and for `other` to end.")
    await until(client, "sweep", "Waits for `prep` to succeed.")
    for name in ("prep", "other"):
        await let_go(client, name)
    phases = await ended(client, "prep", "other", "train", "report")
    assert phases == ["succeeded", "failed", "succeeded", "succeeded"]
    [sweep] = await client.wait([("vision", "sweep")], timeout=TIMEOUT_SECONDS)
    assert sweep.status.experiment is not None
    # What waited for work that failed or was deleted fails too, and so does what waited for that.
    await client.delete_workload("vision", "gone")
    lost = {
        "never": "Not started: `other` failed.",
        "lost-sweep": "Not started: `never` failed.",
        "both": "Not started: `gone` was deleted before it succeeded.",
    }
    for job in await client.wait([("vision", name) for name in lost], timeout=TIMEOUT_SECONDS):
        assert (job.status.phase, job.status.started_at) == ("failed", None)
        assert job.status.reason is not None
        assert job.status.reason.token == "DependencyNeverSatisfied"
        assert job.status.reason.sentence == lost[job.name]
    assert await ended(client, "anyway") == ["succeeded"]
    train, report = [await client.get_workload("vision", one) for one in ("train", "report")]
    assert (train.status.ended_at or 0) <= (report.status.started_at or 0)

    await submit(client, "late", "true", after=[{"name": "prep"}])
    assert await ended(client, "late") == ["succeeded"]
    for after, right in (
        ({"name": "tain"}, "such as `train`"),
        ({"name": "other"}, "it failed; take it with `any`"),
        ({"name": "self"}, "work of `vision`"),
        ({"name": "prep", "uid": "u"}, "uid"),
    ):
        with pytest.raises(ApiError, match=right) as refused:
            await submit(client, "self", "true", after=[after])
        assert refused.value.status == 422
