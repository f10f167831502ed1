"""Ports of workspaces are theirs alone, however many are chosen at once and by whomever."""

import asyncio
import socket
import sys
from contextlib import ExitStack

import pytest

from carrel_spawner.connections import held_port

EACH = 150
HOLDER = f"""
import sys
from contextlib import ExitStack
from carrel_spawner.connections import held_port
with ExitStack() as stack:
    print(*(stack.enter_context(held_port()) for _ in range({EACH})), flush=True)
    sys.stdin.read()
"""


async def test_processes_that_choose_at_once_choose_differently() -> None:
    holders = [
        await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            HOLDER,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        for _ in range(6)
    ]
    found = []
    for holder in holders:
        assert holder.stdout is not None
        found += (await asyncio.wait_for(holder.stdout.readline(), 120)).split()
    for holder in holders:
        await holder.communicate(b"")
    assert len(set(found)) == len(holders) * EACH


def test_nobody_is_given_a_held_port_and_outgoing_connections_avoid_it() -> None:
    with ExitStack() as stack:
        held = {stack.enter_context(held_port()) for _ in range(2000)}
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=4096))
        for _ in range(500):
            there = stack.enter_context(socket.create_connection(listener.getsockname()))
            given = stack.enter_context(socket.socket())
            given.bind(("127.0.0.1", 0))
            assert not held & {there.getsockname()[1], given.getsockname()[1]}


def test_a_server_takes_the_port_that_is_held_for_it() -> None:
    with held_port() as port:
        with socket.socket() as stranger, pytest.raises(OSError, match="in use"):
            stranger.bind(("127.0.0.1", port))
        with (
            socket.create_server(("127.0.0.1", port)) as server,
            socket.create_connection(("127.0.0.1", port)) as visitor,
        ):
            accepted, _ = server.accept()
            with accepted:
                accepted.sendall(b"here")
                assert visitor.recv(4) == b"here"
    with socket.create_server(("127.0.0.1", port)):
        pass
