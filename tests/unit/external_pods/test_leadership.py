"""Who leads, when a dead one is followed, and what is waited for before, in virtual time."""

import logging
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from typing_extensions import override

from carrel_scheduler.engines.kubernetes.leadership import (
    SEEN_SECONDS,
    WRITTEN_SECONDS,
    Clocks,
    Leader,
    LeadershipLost,
    Lease,
    StateFolderLock,
)
from carrel_scheduler.kube.client import GIVEN_UP_SECONDS
from carrel_scheduler.kube.errors import Conflict, Forbidden, NotFound, Unauthorized, Unavailable
from carrel_scheduler.kube.resources import SECRETS
from carrel_scheduler.service.cluster import lead
from carrel_schema.names import EPOCH

CALM = GIVEN_UP_SECONDS + WRITTEN_SECONDS
DURATION = 15.0


class Cluster:
    """One lease, and a policy that hears of it ``late`` seconds later; ``None``: there is none."""

    def __init__(self, late: float | None = 0.0) -> None:
        self.now, self.late = 100.0, late
        self.lease: Lease | None = None
        self.epochs: list[tuple[float, int]] = []
        self.away = False
        self.unknown = 0

    async def pause(self, seconds: float) -> None:
        self.now += seconds

    async def get(self, *_: Any, **__: Any) -> Lease:
        self._answer()
        if self.lease is None:
            raise NotFound(404, "NotFound", "no lease")
        return msgspec.convert(msgspec.to_builtins(self.lease), Lease)

    async def create(self, _: Any, lease: Lease, *__: Any, **___: Any) -> Lease:
        return self._store(lease)

    async def replace(self, _: Any, __: str, lease: Lease, *___: Any, **____: Any) -> Lease:
        self._answer()
        assert self.lease is not None
        if self.lease.metadata.resource_version != lease.metadata.resource_version:
            raise Conflict(409, "Conflict", "another version")
        return self._store(lease)

    async def raw(self, _: str, path: str, body: Any) -> bytes:
        assert "dryRun=All" in path
        epoch = int(body["metadata"]["annotations"][EPOCH])
        if self.late is not None and epoch != self._seen():
            raise Forbidden(403, "Forbidden", f"{EPOCH} is not that")
        raise NotFound(404, "NotFound", "no such pod")

    def _seen(self) -> int:
        late = self.late or 0.0
        return next((of for at, of in reversed(self.epochs) if at + late <= self.now), 0)

    def _store(self, lease: Lease) -> Lease:
        version = str(int(lease.metadata.resource_version or "0") + 1)
        meta = msgspec.structs.replace(lease.metadata, resource_version=version)
        stored = msgspec.structs.replace(lease, metadata=meta)
        self.lease = msgspec.convert(msgspec.to_builtins(stored), Lease)
        self.epochs.append((self.now, stored.spec.lease_transitions))
        return stored

    def _answer(self) -> None:
        if self.unknown > 0:
            self.unknown -= 1
            raise Unauthorized(401, "Unauthorized", f"said for the {self.unknown}th time")
        if self.away:
            raise Unavailable(0, "Unreachable", "away")

    def leader(self, name: str, state_folder: str = "") -> Leader:
        client: Any = self
        clocks = Clocks(lambda: self.now, lambda: self.now, self.pause)
        return Leader(client, "carrel-system", name, clocks, DURATION, state_folder)


async def test_the_next_process_of_a_state_folder_does_not_wait_for_the_dead_ones_lease() -> None:
    cluster = Cluster(late=0.3)
    assert await cluster.leader("one", "s1").acquire() == 1
    cluster.now += 1.0
    began, second = cluster.now, cluster.leader("two", "s1")
    assert await second.acquire() == 2
    assert cluster.now == began
    assert await second.fenced()
    assert began + 0.3 + CALM <= cluster.now < began + 0.5 + CALM


async def test_others_wait_until_the_lease_lapses() -> None:
    for state_folder in ("", "s2", "s"):
        cluster = Cluster()
        await cluster.leader("one", "s1").acquire()
        began = cluster.now
        await cluster.leader("two", state_folder).acquire()
        assert began + DURATION <= cluster.now < began + DURATION + 3.0


async def test_without_a_policy_the_lease_of_the_dead_one_is_waited_for_all_the_same() -> None:
    cluster = Cluster(late=None)
    await cluster.leader("one", "s1").acquire()
    began, second = cluster.now, cluster.leader("two", "s1")
    await second.acquire()
    assert not await second.fenced()
    assert cluster.now >= began + SEEN_SECONDS + DURATION + CALM


async def test_the_first_of_all_waits_for_nobody() -> None:
    cluster = Cluster()
    leader = cluster.leader("one", "s1")
    began = cluster.now
    await leader.acquire()
    assert await leader.fenced()
    assert cluster.now == began


async def test_what_was_begun_is_waited_for_after_a_release_too() -> None:
    cluster = Cluster()
    first, second = cluster.leader("one"), cluster.leader("two")
    await first.acquire()
    await first.release()
    began = cluster.now
    assert await second.acquire() == 2
    await second.fenced()
    assert cluster.now >= began + CALM


async def test_whoever_cannot_renew_in_time_ends() -> None:
    cluster = Cluster()
    leader = cluster.leader("one")
    await leader.acquire()
    cluster.away = True
    began = cluster.now
    with pytest.raises(LeadershipLost):
        await leader.keep()
    assert cluster.now <= began + DURATION + 5.0


async def test_whoever_is_not_known_waits_and_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = Cluster()
    leader = cluster.leader("one")
    cluster.unknown = 50
    assert await leader.acquire() == 1
    assert len([one for one in caplog.records if one.levelno >= logging.WARNING]) == 1
    cluster.unknown = 50
    with pytest.raises(LeadershipLost):
        await leader.keep()
    assert cluster.unknown > 40


async def test_a_new_leader_keeps_the_lease_while_it_still_recovers(tmp_path: Path) -> None:
    class WithKey(Cluster):
        @override
        async def get(self, resource: Any, *names: Any, **more: Any) -> Any:
            if resource is SECRETS:
                return {"data": {"key": "a2V5"}}
            return await super().get(resource, *names, **more)

    cluster: Any = WithKey()
    told = SimpleNamespace(namespace="carrel-system")
    settings: Any = SimpleNamespace(state_dir=tmp_path, need_cluster=lambda: told)
    leading = await lead(settings, cluster)
    assert not leading.keeping.done()
    assert cluster.lease.spec.holder_identity.startswith(f"{leading.lock.name}/")
    await leading.end()
    assert leading.keeping.cancelled()
    assert not cluster.lease.spec.holder_identity


def test_one_process_has_the_lock_of_a_state_folder(tmp_path: Path) -> None:
    with StateFolderLock(tmp_path) as first, StateFolderLock(tmp_path) as second:
        assert first.name
        assert not second.name
        name = first.name
    with StateFolderLock(tmp_path) as again:
        assert again.name == name
    (tmp_path / "other").mkdir()
    with StateFolderLock(tmp_path / "other") as other:
        assert other.name not in ("", name)


def test_the_lock_of_a_state_folder_is_free_once_its_process_was_killed(tmp_path: Path) -> None:
    program = (
        "import os, pathlib, signal, sys\n"
        f"from {StateFolderLock.__module__} import StateFolderLock\n"
        "lock = StateFolderLock(pathlib.Path(sys.argv[1]))\n"
        "print(lock.name, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    killed = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        stdout=subprocess.PIPE,
        check=False,
        timeout=60,
    )
    assert (killed.returncode, bool(killed.stdout.strip())) == (-signal.SIGKILL, True)
    with StateFolderLock(tmp_path) as next_one:
        assert next_one.name
