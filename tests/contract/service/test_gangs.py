"""Gangs and elastic work with real processes: T4, T13, a lost worker, a killed scheduler."""

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from contract.service.site import Site, site

# Steps with the others through the first one's port, from where the file says, until told to end.
WORKER = """
import os, pathlib, socket, time
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
where = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
kept = pathlib.Path(os.environ["CARREL_CHECKPOINT_DIR"])
if rank == 0:
    with socket.create_server(where) as server:
        others = [server.accept()[0] for _ in range(size - 1)]
else:
    while True:
        try:
            others = [socket.create_connection(where)]
            break
        except ConnectionRefusedError:
            time.sleep(0.05)
step = int((kept / "step").read_text()) if (kept / "step").exists() else 0
print("begins at", step, "with", os.environ["CUDA_VISIBLE_DEVICES"], flush=True)
def talk():
    try:
        for other in others:
            other.sendall(b"x")
        return all(other.recv(1) for other in others)
    except OSError:
        return False
while not (kept / "finish").exists():
    if not talk():
        time.sleep(0.1)  # somebody is gone: at the end, or everybody is about to be ended
        continue
    step += 1
    if rank == 0:
        (kept / "new").write_text(str(step))
        (kept / "new").rename(kept / "step")
    time.sleep(0.02)
print("ends", flush=True)
os._exit(0)
"""
GANG: dict[str, Any] = {
    "kind": "distributed",
    "tasks": 2,
    "gpus": 2,
    "command": ["python", "worker.py"],
    "files": {"worker.py": WORKER},
    "grace_seconds": 1.0,
}
SLEEPER: dict[str, Any] = {"command": ["sleep", "600"], "grace_seconds": 5.0}


@pytest.fixture
async def four_gpus(tmp_path: Path) -> AsyncIterator[Site]:
    async with site(tmp_path, 4) as made:
        yield made


@pytest.fixture
async def two_gpus(tmp_path: Path) -> AsyncIterator[Site]:
    async with site(tmp_path, 2) as made:
        yield made


def stepping(site: Site, uid: str) -> bool:
    return (site.checkpoints(uid) / "step").exists()


def task(status: dict[str, Any], index: int) -> dict[str, Any]:
    return next(one for one in status["tasks"] if one["index"] == index)


async def test_t13_a_gang_waits_for_all_restarts_together_and_ends_together(
    four_gpus: Site,
) -> None:
    site = four_gpus
    await site.submit("other", gpus=1, **SLEEPER)
    await site.phase("other", "running")
    uid = await site.submit("ddp", **GANG)
    waiting = await site.until("ddp", lambda status: status["reason"] is not None)
    assert (waiting["phase"], waiting["tasks"]) == ("pending", [])
    await site.ask("POST", "/workloads/vision/other/suspend")
    await site.until("ddp", lambda status: status["phase"] == "running" and stepping(site, uid))
    running = (await site.get("ddp"))["status"]
    os.kill(task(running, 1)["pid"], signal.SIGKILL)
    await site.restart()
    again = await site.until(
        "ddp", lambda status: status["phase"] == "running" and status["attempt"] == 1
    )
    assert again["failures"] == 1
    rows = (await site.ask("GET", "/workloads/vision/ddp/history"))["transitions"]
    (back_off,) = [row for row in rows if row["reason"] and row["reason"]["token"] == "BackOff"]
    assert "worker 1: signal 9" in back_off["reason"]["sentence"]
    assert {one["attempt"] for one in again["tasks"]} == {1}
    (site.checkpoints(uid) / "finish").touch()
    await site.phase("ddp", "succeeded")
    for index in ("0", "1"):
        text = await site.logs("ddp", index=index)
        begins = int(text.split("begins at ")[1].split()[0])
        assert begins > 0
        assert text.endswith("ends\n")
    both = (await site.logs("ddp", index="all")).splitlines()
    assert {line.split()[0] for line in both} == {"[ddp-0]", "[ddp-1]"}
    # Followed, lines come as they are read: not always in the order of their times.
    followed = await site.logs("ddp", index="all", follow="true")
    assert sorted(followed.splitlines()) == sorted(both)
    # Which pair is whose is free: GPUs of the worker that crashed are taken last.
    pairs = [(await site.logs("ddp", index=i)).split("with ")[1].split()[0] for i in "01"]
    devices = [pair.split(",") for pair in pairs]
    assert [len(pair) for pair in devices] == [2, 2]
    assert sorted(devices[0] + devices[1]) == ["0", "1", "2", "3"]


async def test_a_worker_that_never_joins_ends_the_gang_and_is_named(four_gpus: Site) -> None:
    site = four_gpus
    late = "import os, time\nif os.environ['RANK'] == '1': time.sleep(600)\n" + WORKER
    body = GANG | {
        "files": {"worker.py": late},
        "rendezvous": {"join_timeout_seconds": 4.0},
        "backoff_limit": 0,
    }
    await site.submit("ddp", **body)
    failed = await site.phase("ddp", "failed")
    assert "worker 1 has not met the others at port" in failed["reason"]["sentence"]


async def test_the_first_to_end_does_not_end_the_others_and_a_failure_is_named(
    four_gpus: Site,
) -> None:
    site = four_gpus
    script = """
import os, sys, time, pathlib
kept = pathlib.Path(os.environ["CARREL_CHECKPOINT_DIR"])
if os.environ["RANK"] == "0":
    sys.exit(0)
while not (kept / "finish").exists():
    time.sleep(0.05)
sys.exit(7)
"""
    body = GANG | {"files": {"worker.py": script}, "restart_policy": "never"}
    uid = await site.submit("ddp", **body)
    status = await site.until(
        "ddp", lambda status: any(one["place"] == "done" for one in status["tasks"])
    )
    assert status["phase"] in ("starting", "running")
    assert task(status, 1)["ended_at"] is None
    (site.checkpoints(uid) / "finish").touch()
    failed = await site.phase("ddp", "failed")
    assert "worker 1: exit code 7" in failed["reason"]["sentence"]


async def test_t4_gpus_of_one_task_double_and_halve(two_gpus: Site) -> None:
    site = two_gpus
    elastic: dict[str, Any] = {
        "elastic": {"gpus_of_task": True},
        "command": ["sh", "-c", "echo sees $CUDA_VISIBLE_DEVICES; exec sleep 600"],
        "grace_seconds": 2.0,
    }
    filler: dict[str, Any] = {"gpus": 1, "kind": "workspace", **SLEEPER}

    def has(gpus: int) -> Any:
        return lambda status: (
            status["phase"] == "running"
            and status["reason"] is None
            and [len(one["devices"]) for one in status["tasks"]] == [gpus]
        )

    await site.submit("stretch", gpus=1, **elastic)
    await site.until("stretch", has(2), "gets both GPUs")
    await site.submit("filler", **filler)
    await site.phase("filler", "running")
    await site.until("stretch", has(1), "shrinks to 1")
    await site.ask("DELETE", "/workloads/vision/stretch")
    await site.submit("pair", gpus=2, **elastic)
    await site.until("pair", has(1), "starts with 1")
    await site.restart()
    await site.ask("DELETE", "/workloads/vision/filler")
    await site.until("pair", has(2), "expands to 2")
    assert await site.said("pair", attempt="0") in ("sees 0\n", "sees 1\n")
    assert await site.said("pair", attempt="1") in ("sees 0,1\n", "sees 1,0\n")


async def test_workers_come_and_go_one_by_one(two_gpus: Site) -> None:
    site = two_gpus
    body = {
        "kind": "distributed",
        "tasks": 2,
        "gpus": 1,
        "elastic": {"min_tasks": 1},
        **SLEEPER,
    }
    await site.submit("ddp", **body)
    both = await site.until("ddp", lambda s: s["phase"] == "running" and len(s["tasks"]) == 2)
    first = task(both, 0)["pid"]
    await site.submit("filler", gpus=1, kind="workspace", **SLEEPER)
    await site.phase("filler", "running")
    smaller = await site.until("ddp", lambda s: task(s, 1)["place"] == "given-back")
    assert (smaller["phase"], task(smaller, 0)["pid"]) == ("running", first)
    await site.ask("DELETE", "/workloads/vision/filler")
    grown = await site.until(
        "ddp", lambda s: task(s, 1)["place"] == "held" and task(s, 1)["pid"] > 0
    )
    assert (task(grown, 0)["pid"], task(grown, 0)["attempt"]) == (first, 0)
    assert task(grown, 1)["attempt"] == 1
    rows = await site.ask("GET", "/workloads/vision/ddp/history")
    held = [row["gpu_milli"] for row in rows["transitions"]]
    assert [now for now, last in zip(held, [None, *held], strict=False) if now != last] == [
        0,
        2000,
        1000,
        2000,
    ]
