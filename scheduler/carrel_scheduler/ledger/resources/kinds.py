"""Carrel's kinds on a cluster: each kind of work is a kind of its own, also internal ones.

A trial or a replica is work like any other and has what work has, so it gets a kind like any
other: rights can be given for what people make and kept from them for what controllers make, and
``kubectl get trials`` answers without a filter.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from carrel_scheduler.kube.resources import Resource
from carrel_schema.kinds import WorkloadKind
from carrel_schema.names import GROUP, VERSION
from carrel_schema.objects import Department, Object, Project

CATEGORY: Final = "carrel"


@dataclass(frozen=True, slots=True)
class NamedKind:
    """A kind with its names and short names."""

    resource: Resource
    singular: str
    short: tuple[str, ...]


def _named(kind: str, plural: str, *short: str, namespaced: bool = True) -> NamedKind:
    resource = Resource(GROUP, VERSION, plural, kind, namespaced)
    return NamedKind(resource, kind.lower(), short)


WORK: Final[Mapping[WorkloadKind, NamedKind]] = {
    "training": _named("Training", "trainings", "tr"),
    "workspace": _named("Workspace", "workspaces", "ws"),
    "distributed": _named("DistributedTraining", "distributedtrainings", "dtr"),
    "experiment": _named("Experiment", "experiments", "exp"),
    "trial": _named("Trial", "trials"),
    "inference": _named("InferenceEndpoint", "inferenceendpoints", "ie"),
    "replica": _named("Replica", "replicas"),
    "notebook": _named("NotebookJob", "notebookjobs", "nbj"),
    "schedule": _named("Schedule", "schedules", "sched"),
    "tensorboard": _named("TensorBoard", "tensorboards", "tb"),
}
PROJECT: Final = _named("Project", "projects", "proj", namespaced=False)
DEPARTMENT: Final = _named("Department", "departments", "dept", namespaced=False)
NODE_GROUP: Final = _named("NodeGroup", "nodegroups", "ng", namespaced=False)
TOPOLOGY: Final = _named("Topology", "topologies", "topo", namespaced=False)
WORKLOAD_POLICY: Final = _named("WorkloadPolicy", "workloadpolicies", "wlpol")
"""The rules of policies for work in a namespace, for the API server to read."""
POD_GROUP: Final = _named("PodGroup", "podgroups", "pg")

ALL: Final = (*WORK.values(), PROJECT, DEPARTMENT, NODE_GROUP, TOPOLOGY, POD_GROUP, WORKLOAD_POLICY)
BY_KIND: Final[Mapping[str, WorkloadKind]] = {
    named.resource.kind: kind for kind, named in WORK.items()
}


def resources_of(kind: type[Object]) -> tuple[Resource, ...]:
    """The resources of a class of objects."""
    if kind is Project:
        return (PROJECT.resource,)
    if kind is Department:
        return (DEPARTMENT.resource,)
    return tuple(named.resource for named in WORK.values())
