"""Which workloads become places, where their servers are, and what is known of those who left."""

import asyncio
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from carrel.models import Workload
from carrel_hub.gateway.access import allowed
from carrel_hub.gateway.balancing import MOST_HELD, LoadBalancer, TooManyHeld, await_capacity
from carrel_hub.gateway.identity import GatewayPrincipal
from carrel_hub.gateway.routing import RoutedWorkload, RouteTarget, RoutingTable, routed_workload
from carrel_schema.reading import read

HERE = "127.0.0.1"


def workload(version: int = 1, uid: str = "u1", **fields: Any) -> Workload:
    spec = {"kind": "workspace", "user": "ada", "routes": [{}], **fields.pop("spec", {})}
    status = {"phase": "running", "tasks": [{"index": 0, "ports": {"main": 15_000}}]}
    told = {
        "name": "tool",
        "project": "vision",
        "uid": uid,
        "resource_version": version,
        "spec": spec,
        "status": status | fields.pop("status", {}),
    }
    return read(msgspec.json.encode(told), Workload)


def endpoint(*targets: dict[str, Any], least: int = 1, phase: str = "running") -> Workload:
    return workload(
        spec={"kind": "inference", "inference": {"min_replicas": least, "startup_seconds": 0.01}},
        status={"phase": phase, "tasks": [], "endpoint": {"targets": list(targets)}},
    )


def place(found: Workload) -> RoutedWorkload:
    made = routed_workload(found, HERE)
    assert made is not None
    return made


def target(uid: str, state: str = "ready") -> dict[str, Any]:
    return {"uid": uid, "host": HERE, "ports": {"main": 15_001}, "state": state}


def test_a_running_task_with_a_port_is_a_target_until_it_ends() -> None:
    assert place(workload()).targets == {"main": (RouteTarget("u1-0", HERE, 15_000),)}
    ended = {"tasks": [{"index": 0, "ports": {"main": 15_000}, "ended_at": 5.0}]}
    assert place(workload(status=ended)).targets == {"main": ()}
    assert place(workload(status={"phase": "stopping"})).targets == {"main": ()}


def test_an_endpoints_targets_are_those_that_are_ready() -> None:
    found = place(endpoint(target("r1"), target("r2", "draining")))
    assert found.targets == {"main": (RouteTarget("r1", HERE, 15_001),)}


def test_parts_and_work_without_routes_have_no_place() -> None:
    assert routed_workload(workload(spec={"owner": "other"}), HERE) is None
    assert routed_workload(workload(spec={"routes": []}), HERE) is None


@pytest.mark.parametrize(
    ("access", "name", "projects", "is_user", "enters"),
    [
        ("user", "ada", (), True, True),
        ("user", "bea", ("vision",), True, False),
        ("user", "ada", (), False, False),
        ("project", "bea", ("vision",), True, True),
        ("project", "carl", ("speech",), True, False),
        ("everyone", "carl", ("speech",), True, True),
    ],
)
def test_who_may_come(
    access: str, name: str, projects: tuple[str, ...], is_user: bool, enters: bool
) -> None:
    found = place(workload(spec={"routes": [{"access": access}]}))
    person = GatewayPrincipal(name, is_user, frozenset(projects), frozenset())
    assert allowed(found, found.routes["main"], person) is enters


@pytest.mark.parametrize("access", ["user", "project", "everyone"])
def test_a_task_may_ask_within_its_project_only(access: str) -> None:
    found = place(workload(spec={"routes": [{"access": access}]}))
    for project, enters in (("vision", True), ("speech", False)):
        own = frozenset({project})
        task = GatewayPrincipal(
            "ada", is_user=True, projects=own, scopes=frozenset(), within=project
        )
        assert allowed(found, found.routes["main"], task) is enters


def test_routes_are_found_by_the_label_of_their_origin_as_long_as_they_are_there() -> None:
    table = RoutingTable()
    made = place(workload(spec={"routes": [{}, {"name": "docs"}]}))
    table.put(made)
    assert table.at_origin("tool--vision") == (made, "main")
    assert table.at_origin("docs--tool--vision") == (made, "docs")
    assert table.at_origin("tool--speech") == (None, "")
    changed = place(workload(version=2, spec={"routes": [{"name": "other"}]}))
    table.put(changed)
    assert table.at_origin("docs--tool--vision") == (None, "")
    assert table.at_origin("other--tool--vision") == (changed, "other")
    assert table.at_origin("tool--vision") == (changed, "main")  # the first one, as by path
    table.remove("vision", "tool", "u1")
    assert table.at_origin("other--tool--vision") == (None, "")


def test_old_news_changes_nothing_and_another_one_of_the_name_replaces() -> None:
    table = RoutingTable()
    assert table.put(place(workload(5)))
    assert not table.put(place(workload(4, status={"phase": "stopped"})))
    assert table.put(place(workload(1, uid="u2")))
    table.remove("vision", "tool", "u1")
    assert [one.uid for one in table] == ["u2"]
    table.keep_only(set())
    assert table.find("vision", "tool") is None


def test_requests_go_to_the_least_busy_and_to_equals_in_turn() -> None:
    balancer = LoadBalancer()
    targets = [RouteTarget(f"r{number}", HERE, number) for number in range(3)]
    with balancer.at("u1", targets[0]), balancer.at("u1", targets[1]):
        assert balancer.choose("u1", targets, set()) == targets[2]
        assert balancer.choose("u1", targets, {"r2"}) in targets[:2]
    assert {balancer.choose("u1", targets, set()) for _ in range(6)} == set(targets)
    assert balancer.choose("u1", targets, {"r0", "r1", "r2"}) is None
    assert balancer.at_targets("u1") == {}


async def test_requests_wait_for_the_first_server_of_what_comes_by_itself() -> None:
    table, balancer = RoutingTable(), LoadBalancer()
    asleep = place(endpoint(least=0))
    table.put(asleep)
    waiting = asyncio.create_task(
        await_capacity(table, balancer, replace(asleep, startup_seconds=30.0), "main")
    )
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert balancer.held("u1") == 1
    table.put(place(endpoint(target("r1"), least=0)))
    found = await waiting
    assert found is not None
    assert [one.uid for one in found.targets["main"]] == ["r1"]
    assert balancer.held("u1") == 0


async def test_they_do_not_wait_for_ever_nor_for_what_does_not_come_by_itself() -> None:
    table, balancer = RoutingTable(), LoadBalancer()
    asleep, stopped = place(endpoint(least=0)), place(endpoint(least=0, phase="stopped"))
    table.put(asleep)
    assert await await_capacity(table, balancer, asleep, "main") == asleep
    assert await await_capacity(table, balancer, stopped, "main") == stopped
    with ExitStack() as held:
        for _ in range(MOST_HELD):
            held.enter_context(balancer.queued("u1"))
        with pytest.raises(TooManyHeld):
            await await_capacity(table, balancer, asleep, "main")
