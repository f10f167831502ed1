"""Answers that follow changes are those that would be given to somebody who came just now."""

import random
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from carrel_scheduler.engines.kubernetes.pods.placement.constraints import (
    PlacementConstraints,
    PlacementRequest,
)
from carrel_scheduler.engines.kubernetes.pods.types import Node, Pod
from unit.pods.making import container, node, pod

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
APPS = ("web", "db", "cache")
STEPS = 60
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def term(chance: random.Random, key: str) -> dict[str, Any]:
    return {
        "topologyKey": key,
        "labelSelector": {"matchLabels": {"app": chance.choice(APPS)}},
        **chance.choice(({}, {"namespaceSelector": {}}, {"namespaces": ["other"]})),
    }


def some_pod(chance: random.Random, name: str, at: str = "") -> Pod:
    key = chance.choice(("zone", "kubernetes.io/hostname"))
    asks: list[dict[str, Any]] = [
        {},
        {"affinity": {"podAffinity": {REQUIRED: [term(chance, key)]}}},
        {"affinity": {"podAntiAffinity": {REQUIRED: [term(chance, key)]}}},
        {"containers": [container(ports=[{"hostPort": chance.choice((80, 81))}])]},
        {
            "topologySpreadConstraints": [
                {
                    "maxSkew": chance.choice((1, 2)),
                    "topologyKey": "zone",
                    "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": {"matchLabels": {"app": chance.choice(APPS)}},
                }
            ]
        },
    ]
    return pod(
        name,
        namespace=chance.choice(("default", "other")),
        labels={"app": chance.choice(APPS)},
        node=at,
        deleted=chance.random() < 0.1,
        **chance.choice(asks),
    )


def some_node(chance: random.Random, name: str) -> Node:
    soft = [{"key": "spot", "effect": "PreferNoSchedule"}]
    labels = {} if chance.random() < 0.1 else {"zone": chance.choice("abc")}
    return node(name, labels=labels, taints=soft if chance.random() < 0.1 else [])


class World:
    """What there is, and places that follow it."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.places = PlacementConstraints()
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, Pod] = {}
        self.number = 0

    def step(self) -> None:
        name = f"n{self.chance.randrange(6)}"
        what = self.chance.random()
        if what < 0.2:
            self.nodes[name] = some_node(self.chance, name)
            self.places.set_node(self.nodes[name])
        elif what < 0.25:
            self.nodes.pop(name, None)
            self.places.drop_node(name)
        elif what < 0.7:
            self.number += 1
            self._put(some_pod(self.chance, f"p{self.number}", name))
        elif self.pods and what < 0.8:
            one = self.chance.choice(list(self.pods.values()))
            ending = msgspec.structs.replace(one.metadata, deletion_timestamp=NOW)
            self._put(msgspec.structs.replace(one, metadata=ending))
        elif self.pods:
            uid = self.chance.choice(sorted(self.pods))
            del self.pods[uid]
            self.places.drop_pod(uid)

    def _put(self, one: Pod) -> None:
        self.pods[one.metadata.uid] = one
        self.places.put_pod(one)

    def anew(self) -> PlacementConstraints:
        found = PlacementConstraints()
        for there in self.nodes.values():
            found.set_node(there)
        for one in self.pods.values():
            found.put_pod(one)
        return found


@pytest.mark.parametrize("seed", range(2))
def test_answers_follow(seed: int) -> None:
    world = World(random.Random(seed))
    waiting = [some_pod(world.chance, f"waits-{number}") for number in range(10)]
    known: dict[str, PlacementRequest] = {}
    seen: tuple[object, ...] = ()
    for _ in range(STEPS):
        world.step()
        fresh, places = world.anew(), world.places
        changed, seen = seen[1:] != (places.manner,), (places.version, places.manner)
        for one in waiting:
            name = one.metadata.uid
            expected = fresh.ask(one)
            assert places.ask(one) == expected
            # Who keeps an answer until he is told to ask again has the same one.
            if changed or name not in known or known[name].follows:
                known[name] = places.ask(one)
            assert known[name] == expected
            for node_name in world.nodes:
                nodes = expected.request.where.nodes
                assert places.still_fits(one, node_name) is (nodes is None or node_name in nodes)
