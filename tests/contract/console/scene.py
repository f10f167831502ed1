"""A day at the cluster: two projects, two nodes, work in every state."""

import math
from typing import Any

from carrel.testing import FakeScheduler
from contract.console.site import START, Clock

GIB = 1024**3
PEOPLE = {"ada": ["vision"], "ben": ["speech"], "cyd": ["vision", "speech"], "new": []}


def holder(project: str, name: str, milli: int = 1000, **more: Any) -> dict[str, Any]:
    """A holder of a device."""
    base = {"uid": name, "name": name, "project": project, "user": "ada", "kind": "training"}
    return base | {"gpu_milli": milli, "borrowed": False, "state": "running", "since": 0.0} | more


def device(index: int, *holders: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A GPU."""
    return {
        "index": index,
        "uuid": f"GPU-{index}",
        "name": "Simulated A10",
        "memory_mib": 24_576,
        "memory_used_mib": 9_000 if holders else 0,
        "utilization": 0.87 if holders else 0.0,
        "simulated": True,
        "allocated_milli": sum(one["gpu_milli"] for one in holders),
        "holders": list(holders),
    } | more


def node(name: str, *devices: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A node."""
    free = sum(1 for one in devices if not one["holders"] and not one.get("broken"))
    return {
        "name": name,
        "status": "ready",
        "simulated": True,
        "cpu_milli": 64_000,
        "cpu_allocated_milli": 12_000,
        "memory_bytes": 256 * GIB,
        "memory_allocated_bytes": 40 * GIB,
        "gpu_milli": 1000 * len(devices),
        "gpu_allocated_milli": sum(one["allocated_milli"] for one in devices),
        "largest_free_gpus": free,
        "devices": list(devices),
    } | more


def build(fake: FakeScheduler, clock: Clock) -> None:
    """Fill the fake scheduler."""
    _projects(fake)
    _nodes(fake)
    spec: dict[str, Any] = {
        "gpus": 1,
        "cpu_millicores": 4000,
        "memory_bytes": 16 * GIB,
        "preemptible": True,
    }
    command = ["python", "train.py", "--epochs", "40", "--name", "two words"]
    where: dict[str, Any] = {
        "node_group": "a100",
        "gpu_types": ["H100", "A100"],
        "move_to_better_type": True,
    }
    for name in ("train-7", "train-8", "sweep-3"):
        fake.submit("vision", name, command=command, **spec, **(where if name == "train-7" else {}))
    fake.submit(
        "vision",
        "desk",
        kind="workspace",
        gpus=0.5,
        cpu_millicores=2000,
        memory_bytes=8 * GIB,
        preemptible=False,
    )
    clock.forward(95)
    fake.run("vision", "train-7", devices=[0])
    fake.run("vision", "train-8", devices=[1])
    fake.run("vision", "desk", devices=[3])
    _past_of_train_7(fake, clock)
    fake.status("vision", "train-8", borrowed=True)
    fake.report("vision", "train-8", parameters={"lr": 0.02, "net": "small", "data": "cells"})
    for step in range(10, 311, 10):
        loss = 2.6 * math.exp(-step / 300)
        fake.report("vision", "train-8", step=step, total=4000, rate=5.5, metrics={"loss": loss})
    fake.status(
        "vision",
        "desk",
        limits={
            "stops_at": clock.at + 1500,
            "stops_because": "Idle",
            "idle_since": clock.at - 2100,
            "may_extend": True,
        },
    )
    _waiting(fake, clock)
    _of_every_kind(fake, clock)
    _finished(fake, clock)
    clock.forward(420)
    for name, gpus in (("train-7", 0.87), ("train-8", 0.0)):
        points = [
            {"at": clock.at - 60.0 * minute, "gpus": gpus, "memory_mib": 9_000}
            for minute in range(20, -1, -1)
        ]
        fake.gpu_use("vision", name, points)


def _projects(fake: FakeScheduler) -> None:
    fake.project(
        "vision",
        description="Segmentation of microscope images",
        color=0,
        quota={"gpus": 4},
        limit={"gpus": 8},
        interactive={"time_limit_seconds": 43_200.0, "idle_timeout_seconds": 3600.0}
        | {"max_extensions": 1},
        use={"gpus_allocated": 5.5, "gpus_borrowed": 1.5, "gpus_waiting": 5, "running": 3}
        | {"waiting": 2, "fair_share_gpus": 4.5, "cpu_allocated_millicores": 10_000}
        | {"memory_allocated_bytes": 40 * GIB},
    )
    fake.project(
        "speech",
        description="Speech recognition for three languages",
        color=1,
        quota={"gpus": 3},
        use={"gpus_allocated": 2, "gpus_waiting": 1, "running": 2, "waiting": 1}
        | {"fair_share_gpus": 3.5},
    )


def _nodes(fake: FakeScheduler) -> None:
    fake.nodes(
        node(
            "node-1",
            device(0, holder("vision", "train-7")),
            device(1, holder("vision", "train-8", borrowed=True)),
            device(
                2, holder("speech", "", user="", kind=""), idle_since=START - 600.0, utilization=0.0
            ),
            device(3, holder("vision", "desk", 500), holder("vision", "tune-1", 250)),
        ),
        node(
            "node-2",
            device(0, holder("speech", "", user="", kind="", state="held")),
            device(1, holder("vision", "train-9", borrowed=True, state="releasing")),
            device(2, broken=True, message="fell off the bus (Xid 79)"),
            device(3),
        ),
    )


def _past_of_train_7(fake: FakeScheduler, clock: Clock) -> None:
    clock.forward(610)
    fake.status(
        "vision",
        "train-7",
        phase="preempting",
        reason={
            "token": "Reclaimed",
            "sentence": "Preempted by `speech`: it needs 1 GPU of its guarantee back.",
            "help": "It saves its work and goes on by itself when there is room.",
        },
    )
    clock.forward(14)
    fake.preempt("vision", "train-7", for_project="speech", lost=100)
    fake.status(
        "vision",
        "train-7",
        last_preemption={
            "at": clock.at,
            "rule": "Reclaimed",
            "for_project": "speech",
            "for_workload": "",
            "lost_seconds": 100.0,
            "checkpoint_step": 1200,
        },
    )
    clock.forward(140)
    fake.status("vision", "train-7", phase="starting", reason=None)
    clock.forward(2)
    fake.run("vision", "train-7", devices=[0])
    fake.report("vision", "train-7", parameters={"lr": 0.01, "net": "wide", "data": "cells"})
    for step in range(0, 1820, 20):
        loss = 2.3 * math.exp(-step / 500) + 0.08 * math.sin(step / 37) + 0.2
        accuracy = 1 - math.exp(-step / 640) * 0.9
        fake.report(
            "vision",
            "train-7",
            step=step,
            total=4000,
            rate=4.2,
            metrics={"loss": loss, "accuracy": accuracy},
            checkpoint_step=step // 100 * 100,
        )
    fake.log(
        "vision",
        "train-7",
        *(
            f"step {step:>5}  loss {2.3 * math.exp(-step / 500):.4f}"
            for step in range(1500, 1820, 20)
        ),
        "<script>alert('not run')</script>",
    )


def _waiting(fake: FakeScheduler, clock: Clock) -> None:
    fake.wait(
        "vision",
        "sweep-3",
        "Waiting for 1 GPU: `speech` holds 1 of your guaranteed 4 and gives it back within 30 s.",
    )
    fake.status("vision", "sweep-3", queue_position=1)
    fake.submit("vision", "big-2", gpus=4, cpu_millicores=16_000, memory_bytes=64 * GIB, tasks=2)
    fake.wait("vision", "big-2", "Waiting for 8 GPUs: `vision` is limited to 8 and uses 5.5.")
    fake.status(
        "vision",
        "big-2",
        queue_position=2,
        reason=fake.workload("vision", "big-2")["status"]["reason"]
        | {"help": "It starts when `train-7` and `train-8` have ended, or with fewer tasks."},
    )
    fake.submit("speech", "align-9", user="ben", gpus=1)
    fake.wait("speech", "align-9", "Starts in a moment: its GPU is being freed.", "HeldFor")


def _of_every_kind(fake: FakeScheduler, clock: Clock) -> None:
    space = {"lr": {"type": "float", "low": 0.001, "high": 0.1}}
    search = {"parameters": space, "metric": "loss", "completions": 8, "parallelism": 2}
    fake.submit("vision", "sweep", kind="experiment", gpus=1, experiment=search)
    uid = fake.workload("vision", "sweep")["uid"]
    best = {"running": 1, "completed": 1, "best_trial": 0, "best_value": 0.25}
    fake.status(
        "vision", "sweep", phase="running", experiment=best | {"best_parameters": {"lr": 0.01}}
    )
    for number in range(2):
        trial = {"number": number, "parameters": {"lr": 0.01 * (number + 1)}}
        fake.submit("vision", f"sweep-{number}", kind="trial", owner=uid, trial=trial)
        fake.run("vision", f"sweep-{number}")
        fake.report("vision", f"sweep-{number}", step=1, metrics={"loss": 0.25 + number})
    fake.finish("vision", "sweep-0")
    serving = {"min_replicas": 1, "max_replicas": 3}
    fake.submit("vision", "digits", kind="inference", gpus=0.5, inference=serving, routes=[{}])
    endpoint = {"wanted": 2, "ready": 1, "starting": 1, "revision": 1, "in_flight": 3}
    latency = {"latency_p50_seconds": 0.02, "latency_p99_seconds": 0.4}
    fake.status(
        "vision",
        "digits",
        phase="running",
        endpoint=endpoint | latency | {"requests_per_second": 12.5, "last_request_at": clock.at},
    )
    board = {"jobs": ["train-7", "train-8"]}
    fake.submit("vision", "curves", kind="tensorboard", tensorboard=board, routes=[{}])
    fake.run("vision", "curves")
    notebook = {"path": "/home/ada/report.ipynb", "parameters": {"month": 3}}
    fake.submit("vision", "report-1", kind="notebook", notebook=notebook)
    fake.run("vision", "report-1")
    fake.status("vision", "report-1", notebook={"cell": 3, "cells": 9, "output": "/home/ada/out"})
    fake.submit(
        "vision",
        "nightly",
        kind="schedule",
        notebook=notebook,
        schedule={"cron": "0 3 * * *", "time_zone": "Europe/Berlin"},
    )
    fake.status("vision", "nightly", phase="running", schedule={"next_at": clock.at + 3600.0})


def _finished(fake: FakeScheduler, clock: Clock) -> None:
    fake.submit("vision", "train-5", gpus=1)
    fake.run("vision", "train-5")
    fake.submit("vision", "train-6", gpus=1)
    fake.run("vision", "train-6")
    clock.forward(40)
    fake.finish("vision", "train-5")
    fake.finish("vision", "train-6", exit_code=1)
    fake.submit("vision", "old-desk", kind="workspace", gpus=0)
    fake.stop("vision", "old-desk", "Idle", "Stopped: nobody had used it for 1 h.")
