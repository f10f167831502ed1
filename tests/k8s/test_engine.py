"""The engine of a cluster keeps the contract of engines, with real pods on a real node."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator

import pytest

from carrel_scheduler.engines.contract import (
    AlreadyStarted,
    EngineError,
    TaskPhase,
    UnknownTask,
)
from carrel_scheduler.engines.kubernetes.tasks.manifest import pod
from carrel_scheduler.kube.resources import PODS
from carrel_schema.governance.people import PosixIdentity
from contract.engine_contract import EngineContract
from contract.engine_tasks import TIMEOUT_SECONDS, a_task, output, run, wait_for
from k8s.cluster.loading import Images
from k8s.cluster.node import Node
from k8s.cluster_engines import NAMESPACE, ClusterEngines, storage_of

pytestmark = [pytest.mark.enable_socket, pytest.mark.slow]


@pytest.fixture
async def engines(node: Node, images: Images) -> AsyncIterator[ClusterEngines]:
    """Engines whose tasks run on a node that offers GPUs."""
    image = images.on(node, "base")
    storage = storage_of(node)
    opener = ClusterEngines(node.kubeconfig, node.name, image.name, storage)
    await opener.prepare()
    yield opener
    await opener.clean()


class TestKubernetesEngine(EngineContract):
    pass


async def test_a_start_that_was_interrupted_before_the_binding_goes_on(
    engines: ClusterEngines,
) -> None:
    task = a_task(engines, 'echo "$TOKEN"', secret_environment={"TOKEN": "s3cret"})
    await engines.client.create(PODS, pod(task, engines.settings), NAMESPACE)
    engine = await engines.open()
    assert await engine.list() == [], "nothing of it runs"
    with pytest.raises(UnknownTask):
        await engine.stop(task.id, 1.0)
    assert (await run(engine, task)).exit_code == 0
    assert await output(engine, task) == b"s3cret\n"


async def test_a_pod_that_somebody_else_makes_gets_its_place(engines: ClusterEngines) -> None:
    engine = await engines.open()
    task = a_task(engines, "", command=(), external=True, devices=(2,), kind="workspace")
    stream = engine.watch()
    starting = asyncio.create_task(engine.start(task))
    made = pod(a_task(engines, "sleep 600"), engines.settings)
    made["metadata"] |= {"name": "jupyter-ada", "finalizers": []}
    await engines.client.create(PODS, made, NAMESPACE)
    await starting
    running = await wait_for(engine, stream, task, TaskPhase.RUNNING)
    assert (running.node, running.devices) == (engines.node, (2,))
    assert running.address
    with pytest.raises(AlreadyStarted):
        await engine.start(task)
    await engine.stop(task.id, 2.0)
    ended = await wait_for(engine, stream, task, TaskPhase.ENDED)
    assert not ended.lost
    await engine.forget(task.id)
    assert await engine.list() == []


async def test_nobody_makes_the_pod(engines: ClusterEngines) -> None:
    engines.settings = dataclasses.replace(engines.settings, external_seconds=0.1)
    engine = await engines.open()
    with pytest.raises(EngineError, match=r"carrel\.dev/task=w1-0-0"):
        await engine.start(a_task(engines, "", command=(), external=True))
    assert await engine.list() == []


async def test_a_stop_ends_the_wait_for_the_pod(engines: ClusterEngines) -> None:
    engine = await engines.open()
    task = a_task(engines, "", command=(), external=True)
    starting = asyncio.create_task(engine.start(task))
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while True:
            try:
                await engine.stop(task.id, 1.0)
                break
            except UnknownTask:
                await asyncio.sleep(0.05)
        with pytest.raises(EngineError, match="before its pod was made"):
            await starting


async def test_members_who_have_met_are_seen(engines: ClusterEngines) -> None:
    engine = await engines.open()
    listen = "import socket, time; s = socket.create_server(('', 2345)); time.sleep(600)"
    tasks = [
        a_task(engines, "", command=("python3", "-c", listen)),
        a_task(engines, "echo ready; sleep 600", index=1),
    ]
    for task in tasks:
        await engine.start(task)
    ids = [task.id for task in tasks]
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not (met := await engine.met_at(ids, 2345)):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.1)
    assert met == {0}
    assert await engine.met_at(ids, 2346) == frozenset()


async def test_a_task_whose_image_is_not_there_fails_and_says_so(engines: ClusterEngines) -> None:
    engine = await engines.open()
    ended = await run(engine, a_task(engines, "true", image="localhost/no-such:1"))
    assert (ended.exit_code, ended.lost) == (None, False)
    assert "no-such" in ended.message


async def test_a_pod_runs_under_the_numbers_of_the_directory(engines: ClusterEngines) -> None:
    engine = await engines.open()
    posix = PosixIdentity(uid=2001, gid=3001, gids=(3002,))
    task = a_task(engines, "id -u; id -G; touch made; stat -c %u:%g made", posix=posix)
    assert (await run(engine, task)).exit_code == 0
    assert (await output(engine, task)).decode().split() == ["2001", "3001", "3002", "2001:3001"]
