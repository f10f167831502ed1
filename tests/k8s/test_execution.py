"""Commands in, and logs of, a container that a real kubelet runs."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing

import pytest

from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.kube.credentials import from_kubeconfig
from carrel_scheduler.kube.errors import Invalid, NotFound
from carrel_scheduler.kube.execution import Channel, CommandFailed, RemoteCommand, execute
from carrel_scheduler.kube.resources import PODS
from k8s.cluster import pods
from k8s.cluster.images.builder import Image
from k8s.cluster.node import Node

pytestmark = [pytest.mark.enable_socket, pytest.mark.slow, pytest.mark.root]
TIMEOUT_SECONDS = 300.0
NAME = "executed"
COUNTS = """
import pathlib, time
for number in range(1_000_000):
    print(number, flush=True)
    while number == 2 and not pathlib.Path('/tmp/go-on').exists():
        time.sleep(0.05)
    if number == 4:
        time.sleep(600)
"""
SIZE = "import os, time\nwhile os.get_terminal_size() != (91, 17): time.sleep(0.02)\nprint('so')"


@pytest.fixture(scope="module")
def pod(node: Node, base_image: Image) -> Iterator[str]:
    pods.make(node.plane, NAME, base_image.name, ["python3", "-c", COUNTS], nodeName=node.name)
    pods.wait(node.plane, NAME)
    yield NAME
    pods.delete(node.plane, NAME)


@pytest.fixture
async def client(node: Node) -> AsyncIterator[KubeClient]:
    made = KubeClient(from_kubeconfig(node.kubeconfig))
    yield made
    await made.close()


async def begin(
    client: KubeClient, pod: str, *command: str, stdin: bool = False, tty: bool = False
) -> RemoteCommand:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        return await execute(client, "default", pod, command, stdin=stdin, tty=tty)


async def said(command: RemoteCommand) -> dict[Channel, bytes]:
    """All that a command prints until it ends."""
    told = {Channel.OUTPUT: b"", Channel.ERRORS: b""}
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while (piece := await command.read()) is not None:
                told[piece.channel] += piece.data
    finally:
        await command.close()
    return told


async def test_output_errors_and_the_exit_code(client: KubeClient, pod: str) -> None:
    command = await begin(client, pod, "sh", "-c", "echo out; echo err >&2; exit 7")
    assert await said(command) == {Channel.OUTPUT: b"out\n", Channel.ERRORS: b"err\n"}
    assert command.exit_code == 7


async def test_input_and_its_end(client: KubeClient, pod: str) -> None:
    command = await begin(client, pod, "sort", stdin=True)
    await command.write(b"b\na\n")
    await command.close_input()
    assert (await said(command))[Channel.OUTPUT] == b"a\nb\n"
    assert command.exit_code == 0


async def test_the_size_of_a_terminal(client: KubeClient, pod: str) -> None:
    command = await begin(client, pod, "python3", "-c", SIZE, stdin=True, tty=True)
    await command.resize(91, 17)
    assert (await said(command))[Channel.OUTPUT] == b"so\r\n"


async def test_what_cannot_be_run(client: KubeClient, pod: str) -> None:
    with pytest.raises(CommandFailed, match="no-such-program"):
        await said(await begin(client, pod, "no-such-program"))
    with pytest.raises((NotFound, Invalid)):
        await begin(client, "no-such-pod", "true")


async def test_logs_as_they_come(client: KubeClient, pod: str) -> None:
    text = b""
    async with (
        asyncio.timeout(TIMEOUT_SECONDS),
        aclosing(client.stream_text(PODS, pod, "log", "default", {"follow": "true"})) as chunks,
    ):
        async for chunk in chunks:
            text += chunk
            if text == b"0\n1\n2\n":
                await said(await begin(client, pod, "touch", "/tmp/go-on"))
            if text == b"0\n1\n2\n3\n4\n":
                break
    assert text == b"0\n1\n2\n3\n4\n"
    with pytest.raises(Invalid, match="no-such-container"):
        await anext(
            client.stream_text(PODS, pod, "log", "default", {"container": "no-such-container"})
        )
