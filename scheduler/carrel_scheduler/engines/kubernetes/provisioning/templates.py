"""Pod templates of provisioning requests, which are never run: pure.

They have what decides on which node a pod fits and nothing else: no program, no variables, no
volumes. Of Carrel's own work there is no pod yet, so they follow from what the core knows of it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from carrel_scheduler.core.gangs import Growth
from carrel_scheduler.core.requests import GPU_RESOURCE, HOST, IN_GROUP, Request
from carrel_scheduler.core.work.jobs import JobInfo
from carrel_scheduler.engines import gpu_models
from carrel_scheduler.engines.gpu_models import UNGROUPED
from carrel_scheduler.engines.kubernetes.pods.node_groups import NodeGroups
from carrel_scheduler.engines.kubernetes.pods.nodes import CPU_WORKER, GPU_WORKER
from carrel_scheduler.engines.kubernetes.pods.placement.volumes import claims_of
from carrel_scheduler.engines.kubernetes.pods.resource_requests import (
    GPU_RESOURCES,
    PODS,
    in_bytes,
)
from carrel_scheduler.engines.kubernetes.pods.selectors import NAME
from carrel_scheduler.engines.kubernetes.pods.types import NodeSelector, NodeTerm, Pod, Requirement
from carrel_scheduler.engines.kubernetes.provisioning.types import MOST_SETS, PodSet
from carrel_schema.names import NODE_GROUP, SCHEDULER_NAME

IMAGE: Final = "registry.k8s.io/pause"
"""Templates have to name one; none is ever pulled."""
_ROLES: Final = (GPU_WORKER, CPU_WORKER)
Terms = list[tuple[Requirement, ...]]


class NoNewNodes(Exception):  # noqa: N818 - an outcome to tell
    """New nodes would not help; the text is the cause, to follow "because"."""


@dataclass(frozen=True, slots=True)
class _One:
    spec: Mapping[str, Any]
    labels: Mapping[str, str]


def pod_sets(job: JobInfo, pods: Sequence[Pod] | None, groups: NodeGroups) -> tuple[PodSet, ...]:
    """The pods with which a waiting workload starts; equal ones share a set.

    Args:
        job: the core's record of it.
        pods: of other people's work, for each of its first step; ``None`` for our own.
        groups: the groups of nodes.

    Raises:
        NoNewNodes: it is bound to nodes that are there, or its pods are too unlike.
    """
    requests = [job.shape.requests[index] for index in job.shape.first_step]
    if pods is None:
        if any(one.where.nodes is not None for one in requests):
            raise NoNewNodes("its volumes are on nodes that are there")
        made = [_of_request(one, groups) for one in _together(job, requests)]
    else:
        made = [_of_pod(pod, request, groups) for pod, request in zip(pods, requests, strict=True)]
    return _alike(made)


def _together(job: JobInfo, requests: list[Request]) -> list[Request]:
    """The parts of one task that changes its number of GPUs are one pod."""
    gang = job.spec.gang
    if gang is None or gang.growth is not Growth.DOUBLE:
        return requests
    return [replace(requests[0], gpus=sum(one.gpus for one in requests))]


def _alike(made: Iterable[_One]) -> tuple[PodSet, ...]:
    counts: dict[bytes, int] = {}
    kinds: dict[bytes, _One] = {}
    for one in made:
        key = msgspec.json.encode((one.spec, one.labels), order="deterministic")
        kinds.setdefault(key, one)
        counts[key] = counts.get(key, 0) + 1
    if len(kinds) > MOST_SETS:
        raise NoNewNodes(f"its pods are of {len(kinds)} kinds, and a request names {MOST_SETS}")
    return tuple(PodSet(kinds[key].spec, count, kinds[key].labels) for key, count in counts.items())


def _of_request(request: Request, groups: NodeGroups) -> _One:
    """A pod for a task of Carrel's own work."""
    _refuse_instance(request)
    asked = {"cpu": f"{request.cpu_milli}m"}
    if request.memory_mib:
        asked["memory"] = f"{request.memory_mib}Mi"
    limits = _gpus_of(request)
    for name, amount in request.extended:
        if name != PODS:
            limits[name] = f"{amount}Mi" if in_bytes(name) else str(amount)
    terms = _terms(request.where.labels, groups)
    resources = {"requests": {**asked, **limits}, "limits": limits}
    return _One(
        {
            "schedulerName": SCHEDULER_NAME,
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": IMAGE, "resources": resources}],
            **_affinity({}, terms),
        },
        {},
    )


def _refuse_instance(request: Request) -> None:
    if request.mig_profile:
        raise NoNewNodes("MIG instances are made on nodes that an admin has set up for them")


def _gpus_of(request: Request) -> dict[str, str]:
    """A share takes a whole GPU of a new node."""
    shares = request.devices if request.share_milli or request.gpu_memory_mib else 0
    gpus = request.gpus or shares
    return {GPU_RESOURCES[0]: str(gpus)} if gpus else {}


def _of_pod(pod: Pod, request: Request, groups: NodeGroups) -> _One:
    """A pod that somebody else made, as far as it decides where it fits."""
    _refuse_instance(request)
    if claims_of(pod) and request.where.nodes is not None:
        raise NoNewNodes("its volumes are on nodes that are there")
    if pod.spec.resource_claims:
        raise NoNewNodes("it asks for devices by claims")
    spec = pod.spec
    own = [label for label in request.where.labels if label[0] in (IN_GROUP, NODE_GROUP)]
    affinity = msgspec.to_builtins(spec.affinity) if spec.affinity is not None else {}
    required = None
    if spec.affinity is not None and spec.affinity.node_affinity is not None:
        required = spec.affinity.node_affinity.required
    terms = _both(required, _terms(own, groups))
    containers = [_container(one) for one in spec.containers]
    extra = {} if request.gpus else _gpus_of(request)
    if containers and extra:
        resources = containers[0].setdefault("resources", {})
        for part in ("requests", "limits"):
            resources[part] = {**resources.get(part, {}), **extra}
    kept = {
        "nodeSelector": spec.node_selector,
        "tolerations": msgspec.to_builtins(spec.tolerations),
        "topologySpreadConstraints": msgspec.to_builtins(spec.topology_spread_constraints),
        "initContainers": [_container(one) for one in spec.init_containers],
    }
    return _One(
        {
            "schedulerName": SCHEDULER_NAME,
            "restartPolicy": "Never",
            "containers": containers,
            **{name: value for name, value in kept.items() if value},
            **_affinity(affinity, terms),
        },
        pod.metadata.labels,
    )


def _container(one: Any) -> dict[str, Any]:
    ports = [
        {"containerPort": port.host_port, "hostPort": port.host_port, "protocol": port.protocol}
        for port in one.ports
        if port.host_port
    ]
    resources = msgspec.to_builtins(msgspec.structs.replace(one.resources, claims=()))
    return {
        "name": one.name,
        "image": IMAGE,
        **({"resources": resources} if resources else {}),
        **({"ports": ports} if ports else {}),
        **({"restartPolicy": one.restart_policy} if one.restart_policy else {}),
    }


def _terms(labels: Iterable[tuple[str, frozenset[str]]], groups: NodeGroups) -> list[NodeTerm]:
    """The core's conditions as terms of which one holds; without conditions none."""
    every: list[Requirement] = []
    fields: list[Requirement] = []
    allowed: frozenset[str] | None = None
    for key, values in labels:
        if key in (IN_GROUP, NODE_GROUP):
            allowed = values if allowed is None else allowed & values
        elif key == HOST:
            fields.append(Requirement(NAME, "In", tuple(sorted(values))))
        elif key in _ROLES:
            every.append(Requirement(key, "Exists"))
        elif key != GPU_RESOURCE:
            name = gpu_models.PRODUCT if key == gpu_models.LABEL else key
            every.append(Requirement(name, "In", tuple(sorted(values))))
    alternatives: Terms = [()] if allowed is None else groups.selectors(allowed)
    if not alternatives:
        closed = sorted(allowed or ())
        which = ", ".join(f"`{one}`" for one in closed if one != UNGROUPED) or "that it may use"
        raise NoNewNodes(f"the node groups ({which}) have no labels that new nodes could have")
    found = [NodeTerm((*every, *one), tuple(fields)) for one in alternatives]
    return [term for term in found if term.match_expressions or term.match_fields]


def _both(required: NodeSelector | None, terms: list[NodeTerm]) -> list[NodeTerm]:
    """Terms of which one holds where one of each of two lists does."""
    own = list(required.node_selector_terms) if required is not None else []
    if not own or not terms:
        return own or terms
    return [
        NodeTerm(
            (*one.match_expressions, *other.match_expressions),
            (*one.match_fields, *other.match_fields),
        )
        for one in own
        for other in terms
    ]


def _affinity(affinity: dict[str, Any], terms: list[NodeTerm]) -> dict[str, Any]:
    if terms:
        selector = msgspec.to_builtins(NodeSelector(tuple(terms)))
        nodes = affinity.get("nodeAffinity", {})
        key = "requiredDuringSchedulingIgnoredDuringExecution"
        affinity = {**affinity, "nodeAffinity": {**nodes, key: selector}}
    return {"affinity": affinity} if affinity else {}
