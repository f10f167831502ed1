"""A cluster of three zones, and pods that want certain nodes or neighbours."""

from typing import Any

from carrel_scheduler.core.requests import HOST
from carrel_scheduler.engines.kubernetes.pods.placement.constraints import (
    PlacementConstraints,
)
from carrel_scheduler.engines.kubernetes.pods.types import Node, Pod
from unit.pods.making import node, pod

ZONES = {"a1": "a", "a2": "a", "b1": "b", "bare": ""}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
HOSTNAME = "kubernetes.io/hostname"


def cluster(*more: Node, by_role: bool = False) -> PlacementConstraints:
    places = PlacementConstraints(by_role=by_role)
    for name, zone in ZONES.items():
        size = {"a1": "1", "a2": "2", "b1": "4"}.get(name)
        labels = {"zone": zone, "size": size or ""} if zone else {}
        places.set_node(node(name, labels=labels))
    for one in more:
        places.set_node(one)
    return places


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


def wants(*terms: list[dict[str, Any]], fields: list[dict[str, Any]] | None = None) -> Pod:
    """A pod with node affinity; each term a list of expressions."""
    said: list[dict[str, Any]] = [{"matchExpressions": term} for term in terms]
    if fields is not None:
        said.append({"matchFields": fields})
    return pod(affinity={"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": said}}})


def nodes(places: PlacementConstraints, of: Pod) -> set[str]:
    """The nodes open to a pod, by everything the core is told."""
    where = places.ask(of).request.where
    found = set(places.nodes.all()) if where.nodes is None else set(where.nodes)
    for key, values in where.labels:
        found = {
            name
            for name in found
            if (name if key == HOST else places.nodes.value(name, key)) in values
        }
    return found


AWAY = "podAntiAffinity"
NEAR = "podAffinity"


def beside(*labels: str, key: str = "zone", side: str = NEAR, **more: Any) -> dict[str, Any]:
    """An affinity to, or against, pods with the label app in ``labels``."""
    term = {
        "topologyKey": key,
        "labelSelector": {"matchExpressions": [expression("app", "In", *labels)]},
        **more,
    }
    return {side: {REQUIRED: [term]}}


def app(name: str, value: str, at: str = "", **more: Any) -> Pod:
    return pod(name, labels={"app": value}, node=at, **more)
