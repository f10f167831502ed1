"""Ports that are held on a real machine until a server takes them."""

import random
import socket

from carrel_scheduler.engines.contract import TaskId
from carrel_scheduler.workloads.state.ports import HeldPorts
from carrel_schema.sections import Route

TASK = TaskId("uid", 0, 0)


def test_a_held_port_is_given_to_nobody_else_and_a_server_gets_it() -> None:
    first, second = (
        HeldPorts(chance=random.Random(1).random),
        HeldPorts(chance=random.Random(1).random),
    )
    given = first.give(TASK, [Route(), Route(name="b")], ())
    other = second.give(TASK, [Route(), Route(name="b")], ())
    ports = [*given.values(), *other.values()]
    assert len(set(ports)) == 4
    assert all(1024 < port < 32_768 for port in ports)
    with socket.create_server(("127.0.0.1", given["main"])) as server:
        assert "is used already" in first.refusal([Route(port=given["main"])])
        assert server.getsockname()[1] == given["main"]
    first.let_go(TASK)
    second.let_go(TASK)
    with socket.socket() as plain:
        plain.bind(("127.0.0.1", other["main"]))


def test_what_others_have_is_not_given() -> None:
    draws = iter([0.0, 0.0, 0.5, 0.5, 0.75])
    ports = HeldPorts(chance=lambda: next(draws))
    first = ports.give(TASK, [Route()], ())["main"]
    second = ports.give(TaskId("other", 0, 0), [Route()], ())["main"]
    third = ports.give(TaskId("third", 0, 0), [Route()], {first, second})["main"]
    assert len({first, second, third}) == 3
    for name in ("uid", "other", "third"):
        ports.let_go(TaskId(name, 0, 0))
