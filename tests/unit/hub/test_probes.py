"""Silent parts and failed restarts of ``carrel up``, in virtual time."""

import asyncio
import errno
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typing_extensions import override

from carrel_hub.up import supervisor as supervising
from carrel_hub.up.parts import ProcessPart
from carrel_hub.up.probes import Watchdog, over_http
from carrel_hub.up.supervisor import Supervisor


class World:
    """A clock that runs while somebody waits, and a part that answers as ``lives`` says."""

    def __init__(self, lives: Callable[[float], bool], delay: float = 0.0) -> None:
        self.now, self.asked = 0.0, 0
        self.lives, self.delay = lives, delay

    async def ask(self, seconds: float) -> bool:
        self.asked += 1
        await self.sleep(min(seconds, self.delay))
        return self.lives(self.now) and self.delay <= seconds

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)

    @property
    def dog(self) -> Watchdog:
        return Watchdog(self.ask, lambda: self.now, self.sleep)


async def test_a_part_that_answers_no_more_is_silent_after_ten_seconds() -> None:
    world = World(lambda now: now < 100)
    await world.dog.until_unresponsive()
    assert 110 <= world.now < 115


async def test_slow_answers_and_short_silences_are_no_silence() -> None:
    world = World(lambda now: now < 60 or 66 < now < 1000, delay=4.0)
    await world.dog.until_unresponsive()
    assert world.now > 1000


async def test_a_part_that_starts_has_time() -> None:
    world = World(lambda now: 170 < now < 1000)
    await world.dog.until_unresponsive()
    assert world.now > 1000
    world = World(lambda _: False)
    await world.dog.until_unresponsive()
    assert 180 <= world.now < 190


async def test_the_timeout_grows_with_restarts() -> None:
    world = World(lambda now: now < 5)
    await world.dog.until_unresponsive(80)
    assert world.now >= 85


class Refusing:
    """An HTTP session that cannot connect."""

    def __init__(self, number: int) -> None:
        self.number = number

    def get(self, *_: object, **__: object) -> object:
        raise OSError(self.number, os.strerror(self.number))


@pytest.mark.parametrize(
    ("number", "lives"),
    [(errno.EMFILE, True), (errno.ENOMEM, True), (errno.ECONNREFUSED, False)],
)
async def test_a_question_that_we_could_not_ask_is_held_against_nobody(
    number: int, lives: bool
) -> None:
    session: object = Refusing(number)
    assert await over_http(session, "http://127.0.0.1:1/", {})(1.0) is lives  # type: ignore[arg-type]


@pytest.fixture
def part(tmp_path: Path) -> ProcessPart:
    return ProcessPart("hub", "Hub", [sys.executable, "-c", "input()"], tmp_path / "hub.log", {})


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervising, "FIRST_PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(supervising, "LONGEST_PAUSE_SECONDS", 0.004)
    monkeypatch.setattr(supervising, "TERMINATE_SECONDS", 0.05)


class Child:
    """A process as asyncio has it; stopped ones take no notice of ``terminate``."""

    def __init__(self, *, stopped: bool = False) -> None:
        self.stopped, self.returncode, self.over = stopped, None, asyncio.Event()
        self.signals: list[str] = []
        self.pid = 1

    async def wait(self) -> int:
        await self.over.wait()
        return 0

    def terminate(self) -> None:
        self.signals.append("terminate")
        if not self.stopped:
            self.over.set()

    def kill(self) -> None:
        self.signals.append("kill")
        self.over.set()


class Children(Supervisor):
    """A supervisor whose children are no processes; some starts fail."""

    def __init__(self, made: list[Child], errors: list[OSError]) -> None:
        self.said: list[str] = []
        super().__init__(self.said.append)
        self.made, self.errors = made, errors

    @override
    async def _in_group(self, command: list[str], part: ProcessPart, log: int) -> Child:  # type: ignore[override]
        if self.errors:
            raise self.errors.pop(0)
        return self.made.pop(0)


async def endless(_: float) -> bool:
    return True


async def rounds(met: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not met():  # noqa: ASYNC110 - it is told by what others did
            await asyncio.sleep(0.001)


@pytest.mark.usefixtures("quick")
async def test_a_restart_that_fails_is_tried_again(part: ProcessPart) -> None:
    errors = [
        OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)),
        BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN)),
        OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
    ]
    first, second = Child(), Child()
    children = Children([first, second], [])
    await children.start(part)
    children.keep_running(part, Watchdog(endless))
    children.errors = errors
    first.over.set()
    await rounds(lambda: not children.made)
    assert [said.partition(": ")[0] for said in children.said] == ["Hub cannot be started"] * 3
    assert "Cannot allocate memory" in children.said[0]
    for watcher in children._watchers:
        watcher.cancel()


@pytest.mark.usefixtures("quick")
async def test_a_silent_part_is_ended_and_started_again(part: ProcessPart) -> None:
    hung, fresh = Child(stopped=True), Child()
    children = Children([hung, fresh], [])
    await children.start(part)
    world = World(lambda now: now < 30 or not children.made)
    children.keep_running(part, world.dog)
    await rounds(lambda: not children.made)
    assert hung.signals == ["terminate", "kill"]
    assert not fresh.signals
    assert children.said == ["Hub runs but does not answer; it is started again."]
    for watcher in children._watchers:
        watcher.cancel()
