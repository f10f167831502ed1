"""Listeners of folders: one that fails is called again, and takes nothing from the others."""

import asyncio
import errno
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from carrel_scheduler.engines.local import inotify
from carrel_scheduler.engines.local.inotify import Inotify

TIMEOUT_SECONDS = 60.0


class Failing:
    """A listener that fails so many times."""

    def __init__(self, times: int, error: Exception) -> None:
        self.times, self.error = times, error
        self.heard: list[str] = []
        self.content = asyncio.Event()

    def __call__(self, name: str) -> None:
        self.heard.append(name)
        if len(self.heard) <= self.times:
            raise self.error
        self.content.set()


@pytest.fixture
async def notices(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Inotify]:
    monkeypatch.setattr(inotify, "POLL_SECONDS", 0.01)
    notices = Inotify()
    yield notices
    notices.close()


@pytest.mark.parametrize("error", [OSError(errno.EMFILE, os.strerror(errno.EMFILE)), KeyError("x")])
async def test_a_listener_that_fails_takes_nothing_from_others(
    notices: Inotify, tmp_path: Path, error: Exception
) -> None:
    first, second, other = Failing(3, error), Failing(0, error), Failing(0, error)
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    notices.watch(tmp_path / "a", inotify.CREATED, first)
    notices.watch(tmp_path / "a", inotify.CREATED, second)
    notices.watch(tmp_path / "b", inotify.CREATED, other)
    (tmp_path / "a" / "one").touch()
    (tmp_path / "b" / "two").touch()
    async with asyncio.timeout(TIMEOUT_SECONDS):
        for listener in (first, second, other):
            await listener.content.wait()
    assert (first.heard, second.heard, other.heard) == (["one", "", "", ""], ["one"], ["two"])


async def test_one_that_stops_listening_is_not_called_again(
    notices: Inotify, tmp_path: Path
) -> None:
    failing, other = Failing(10**6, OSError("x")), Failing(0, OSError("x"))
    stop = notices.watch(tmp_path, inotify.CREATED, failing)
    (tmp_path / "one").touch()
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while len(failing.heard) < 3:  # noqa: ASYNC110 - called by a timer
            await asyncio.sleep(0.01)
    stop()
    notices.forget(failing)
    heard = len(failing.heard)
    notices.watch(tmp_path, inotify.CREATED, other)
    (tmp_path / "two").touch()
    async with asyncio.timeout(TIMEOUT_SECONDS):
        await other.content.wait()
    await asyncio.sleep(0.05)
    assert len(failing.heard) == heard
