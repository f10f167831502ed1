"""The life of endpoints on real processes: precedence, updates under load, scaling, mishaps."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from contract.gateway.running import GatewaySite, gateway_site, until

QUICK = {"readiness_path": "/healthz", "drain_seconds": 20}


class Load:
    """People who ask one after the other, and what they were answered."""

    def __init__(self, served: GatewaySite, path: str) -> None:
        self.served, self.path = served, path
        self.statuses: Counter[int] = Counter()
        self.versions: Counter[str] = Counter()
        self.wrong: list[bytes] = []

    async def person(self) -> None:
        while True:
            status, body, _ = await self.served.ask("POST", self.path, data=b"x" * 1000)
            self.statuses[status] += 1
            if status == 200:
                self.versions[json.loads(body)["version"]] += 1
            else:
                self.wrong.append(body)


@asynccontextmanager
async def load(served: GatewaySite, path: str, people: int = 4) -> AsyncIterator[Load]:
    """Somebody asks all the time."""
    made = Load(served, path)
    tasks = [asyncio.create_task(made.person()) for _ in range(people)]
    try:
        yield made
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_it_comes_before_training_is_never_a_victim_and_waits_beyond_the_quota(
    tmp_path: Path,
) -> None:
    async with gateway_site(tmp_path, gpus=1) as served:
        sleep = {"project": "vision", "command": ["sleep", "600"], "gpus": 1, "grace_seconds": 2}
        await served.api("POST", "/workloads", body=sleep | {"name": "train"})
        await served.until("train", lambda one: one["phase"] == "running")
        await served.submit("digits", gpus=1)
        await served.until_ready("digits")
        train = await served.status("train")
        assert (train["phase"], train["last_preemption"]["rule"]) == ("pending", "preempt")
        urgent = sleep | {"name": "urgent", "priority": 1_000_000}
        await served.api("POST", "/workloads", body=urgent)
        await served.submit("second", gpus=1)
        await served.until("urgent", lambda one: one["phase"] == "pending" and one["reason"])

        async def why() -> tuple[dict[str, Any], int, bytes, Any]:
            return await served.status("second"), *await served.ask("GET", "vision/second/")

        second, status, body, headers = await until(
            why,
            lambda now: (now[0]["reason"] or {}).get("sentence", "?") in now[2].decode(),
            "the gateway says why it waits",
        )
        assert (second["phase"], second["endpoint"]["ready"]) == ("pending", 0)
        assert (status, json.loads(body)["code"]) == (503, "not_ready")
        assert int(headers["Retry-After"]) > 0
        assert (await served.status("digits"))["endpoint"]["ready"] == 1


async def test_updates_crashes_and_restarts_lose_no_request(tmp_path: Path) -> None:
    async with gateway_site(tmp_path) as served:
        two = QUICK | {"min_replicas": 2, "max_replicas": 2}
        await served.submit("digits", inference=two, gpus=0.5)
        await served.until_ready("digits", 2)
        async with load(served, "vision/digits/x") as asked:
            await _rolls_over(served, asked)
            await _lives_through_a_kill_of_the_scheduler(served, asked)
        assert set(asked.statuses) == {200}, asked.wrong[:3]
        await _replaces_what_crashes(served)
        await _rests_and_comes_back(served)


async def _rolls_over(served: GatewaySite, asked: Load) -> None:
    await until(_count(asked, "1"), lambda count: count > 20, "requests before the update")
    change = {"environment": {"VERSION": "2"}}
    body = await served.api("PATCH", "/workloads/vision/digits", body=change)
    assert body["spec"]["inference"]["revision"] == 2
    await served.until(
        "digits",
        lambda one: (
            one["endpoint"]["revision"] == 2
            and one["endpoint"]["ready"] == len(one["endpoint"]["targets"]) == 2
            and not one["endpoint"]["updating"]
        ),
    )
    await until(_count(asked, "2"), lambda count: count > 20, "requests after the update")
    assert set(asked.statuses) == {200}, asked.wrong[:3]


async def _lives_through_a_kill_of_the_scheduler(served: GatewaySite, asked: Load) -> None:
    before = [one["uid"] for one in (await served.status("digits"))["endpoint"]["targets"]]
    await served.scheduler.kill()
    seen = asked.versions["2"]
    await until(_count(asked, "2"), lambda count: count > seen + 50, "answers without a scheduler")
    await served.scheduler.start()
    headers = {"Authorization": "token ada"}
    async with aiohttp.ClientSession(headers=headers) as session:
        await served.scheduler.ready(session)
    after = await served.until("digits", lambda one: one["endpoint"]["ready"] == 2)
    assert [one["uid"] for one in after["endpoint"]["targets"]] == before


def _count(asked: Load, version: str) -> Any:
    async def read() -> int:
        return asked.versions[version]

    return read


async def _replaces_what_crashes(served: GatewaySite) -> None:
    before = {one["uid"] for one in (await served.status("digits"))["endpoint"]["targets"]}
    status, body, _ = await served.ask("GET", "vision/digits/crash")
    # What broke off is repeated once elsewhere, so both replicas are gone now.
    assert (status, json.loads(body)["code"]) == (502, "target_broke_off")
    await served.until(
        "digits",
        lambda one: (
            one["endpoint"]["ready"] == 2
            and before.isdisjoint(target["uid"] for target in one["endpoint"]["targets"])
        ),
        "new replicas",
    )
    await served.until_ready("digits", 2)


async def _rests_and_comes_back(served: GatewaySite) -> None:
    await served.api("POST", "/workloads/vision/digits/suspend")
    rests = await served.until("digits", lambda one: one["phase"] == "stopped")
    assert rests["reason"]["token"] == "Suspended"
    await served.until("digits", lambda one: one["endpoint"]["targets"] == [])
    await until(_gone(served), lambda status: status == 503, "no answer at rest")
    await served.api("POST", "/workloads/vision/digits/resume")
    await served.until_ready("digits", 2)
    await served.api("DELETE", "/workloads/vision/digits")
    await until(_gone(served), lambda status: status == 404, "no endpoint")


def _gone(served: GatewaySite) -> Any:
    async def read() -> int:
        return (await served.ask("GET", "vision/digits/healthz"))[0]

    return read


async def test_from_nothing_to_several_and_back(tmp_path: Path) -> None:
    async with gateway_site(tmp_path) as served:
        bounds = {
            "min_replicas": 0,
            "max_replicas": 2,
            "in_flight_per_replica": 2,
            "idle_seconds": 2,
        }
        await served.submit("digits", inference=QUICK | bounds)
        await served.until("digits", lambda one: _asleep(one) and one["endpoint"]["made"] == 1)
        assert (await served.status("digits"))["phase"] == "running"
        assert (await served.ask("POST", "vision/digits/", data=b"wake up"))[0] == 200
        people = [
            asyncio.create_task(served.ask("GET", "vision/digits/slow?seconds=300"))
            for _ in range(4)
        ]
        await served.until("digits", lambda one: one["endpoint"]["ready"] == 2)
        for one in people:
            one.cancel()
        await asyncio.gather(*people, return_exceptions=True)
        await served.until("digits", _asleep)


def _asleep(status: dict[str, Any]) -> bool:
    endpoint = status["endpoint"] or {"wanted": 1}
    return endpoint["wanted"] == 0 and not endpoint["targets"]


async def test_who_never_gets_ready_and_who_ends_at_once(tmp_path: Path) -> None:
    async with gateway_site(tmp_path) as served:
        short = {"startup_seconds": 1, "readiness_path": "/"}
        await served.submit(
            "mute", command=["sleep", "600"], backoff_limit=1, inference=short, grace_seconds=1
        )
        await served.submit("short", command=["sh", "-c", "exit 3"], backoff_limit=1, inference={})
        for name, token, words in (
            ("mute", "NeverReady", "did not answer at its port"),
            ("short", "ReplicasFailed", "exit code 3"),
        ):
            status = await served.until(name, lambda one: one["phase"] == "stopped", name)
            assert status["reason"]["token"] == token
            assert words in status["reason"]["sentence"]
            assert f"`{name}-r2`" in status["reason"]["help"]
            answer, body, _ = await served.ask("GET", f"vision/{name}/")
            assert (answer, status["reason"]["sentence"] in body.decode()) == (503, True)
        fixed = {"command": ["sleep", "1"], "routes": [{"port": 8080}]}
        async with served.session.post(
            f"{served.scheduler.api}/workloads",
            json={"name": "f", "project": "vision", "kind": "inference", "inference": {}} | fixed,
            headers={"Authorization": "token ada"},
        ) as answer_:
            assert (answer_.status, "fixed_port" in await answer_.text()) == (422, True)
