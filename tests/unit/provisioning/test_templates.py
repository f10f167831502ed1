"""What the pods look like for which nodes are asked."""

from typing import Any

import msgspec
import pytest

from carrel_scheduler.core.events import Preemptibility, QueueSet, WorkloadQueued
from carrel_scheduler.core.gangs import Group, Growth, Level
from carrel_scheduler.core.requests import HOST, IN_GROUP, NodeConstraint, Request
from carrel_scheduler.core.resources import UNLIMITED, ResourceVector
from carrel_scheduler.core.state import State
from carrel_scheduler.core.work.jobs import JobInfo
from carrel_scheduler.engines.gpu_models import LABEL, UNGROUPED
from carrel_scheduler.engines.kubernetes.pods.node_groups import NodeGroups
from carrel_scheduler.engines.kubernetes.pods.nodes import GPU_WORKER
from carrel_scheduler.engines.kubernetes.pods.types import Pod
from carrel_scheduler.engines.kubernetes.provisioning.templates import NoNewNodes, pod_sets
from carrel_scheduler.engines.kubernetes.provisioning.types import PodSet
from carrel_schema.groups import NodeGroupSpec
from carrel_schema.names import NODE_GROUP


def job(*requests: Request, gang: Group | None = None) -> JobInfo:
    state = State()
    state.apply(QueueSet("a", ResourceVector(UNLIMITED, UNLIMITED, UNLIMITED)))
    group = gang or (Group(requests=requests) if len(requests) > 1 else None)
    state.apply(
        WorkloadQueued("u", "u", "a", "ada", 0, Preemptibility.YES, requests[0], gang=group)
    )
    return state.job("u")


def where(**labels: str) -> NodeConstraint:
    return NodeConstraint(labels=tuple((key, frozenset({value})) for key, value in labels.items()))


def groups(**specs: NodeGroupSpec) -> NodeGroups:
    found = NodeGroups()
    for name, spec in specs.items():
        found.set(name, spec)
    return found


def written(found: PodSet) -> dict[str, Any]:
    """The specification as it is sent."""
    sent: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(found.spec))
    return sent


def only(request: Request, known: NodeGroups | None = None) -> dict[str, Any]:
    [found] = pod_sets(job(request), None, known or groups())
    assert found.count == 1
    return written(found)


def asked(spec: dict[str, Any]) -> dict[str, str]:
    [container] = spec["containers"]
    resources = container["resources"]
    assert resources["limits"].items() <= resources["requests"].items()
    return dict(resources["requests"])


def terms(spec: dict[str, Any]) -> list[Any]:
    found = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return list(found["nodeSelectorTerms"])


def has(key: str, *values: str, operator: str = "In") -> dict[str, Any]:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


def test_our_own_work_asks_for_what_its_pod_will_take() -> None:
    found = asked(only(Request(gpus=4, cpu_milli=8000, memory_mib=16384)))
    assert found == {"cpu": "8000m", "memory": "16384Mi", "nvidia.com/gpu": "4"}
    share = Request(share_milli=250, devices=2, cpu_milli=100)
    assert asked(only(share))["nvidia.com/gpu"] == "2"
    instance = Request(extended=(("nvidia.com/mig-1g.10gb", 1), ("pods", 1)), counted_milli=125)
    assert asked(only(instance)) == {"cpu": "0m", "nvidia.com/mig-1g.10gb": "1"}


def test_the_parts_of_a_task_that_grows_are_one_pod() -> None:
    first, part = Request(gpus=1, cpu_milli=500), Request(gpus=1)
    level = Level(required=HOST)
    gang = Group(requests=(first, *[part] * 7), min_tasks=4, level=level, growth=Growth.DOUBLE)
    [found] = pod_sets(job(first, gang=gang), None, groups())
    assert (found.count, asked(written(found))) == (1, {"cpu": "500m", "nvidia.com/gpu": "4"})


def test_an_elastic_gang_asks_for_its_minimum() -> None:
    one = Request(gpus=1)
    [found] = pod_sets(job(one, gang=Group(requests=(one,) * 8, min_tasks=3)), None, groups())
    assert found.count == 3


def test_new_nodes_are_in_the_group_and_have_the_gpus_that_are_asked_for() -> None:
    known = groups(a100=NodeGroupSpec(match_labels={"pool": "a", "zone": "z"}))
    request = Request(gpus=1, where=where(**{NODE_GROUP: "a100", LABEL: "A100", GPU_WORKER: "yes"}))
    [term] = terms(only(request, known))
    assert term["matchExpressions"] == [
        has("nvidia.com/gpu.product", "A100"),
        has(GPU_WORKER, operator="Exists"),
        has("pool", "a"),
        has("zone", "z"),
    ]
    labelled = Request(gpus=1, where=where(**{NODE_GROUP: "v100"}))
    assert terms(only(labelled))[0]["matchExpressions"] == [has(NODE_GROUP, "v100")]


def test_new_nodes_are_in_no_group_that_is_closed_to_the_work() -> None:
    known = groups(
        open=NodeGroupSpec(match_labels={"pool": "o"}),
        theirs=NodeGroupSpec(match_labels={"pool": "t"}, projects=("b",)),
        third=NodeGroupSpec(match_labels={"pool": "h"}),
    )
    allowed = (IN_GROUP, frozenset({UNGROUPED, "open", "third"}))
    anywhere = Request(gpus=1, where=NodeConstraint(labels=(allowed,)))
    [term] = terms(only(anywhere, known))
    assert term["matchExpressions"] == [has("pool", "t", operator="NotIn")]
    listed = (IN_GROUP, frozenset({"open", "third"}))
    found = terms(only(Request(gpus=1, where=NodeConstraint(labels=(listed,))), known))
    assert [one["matchExpressions"] for one in found] == [[has("pool", "o")], [has("pool", "h")]]


@pytest.mark.parametrize(
    ("request_", "known", "why"),
    [
        (
            Request(where=NodeConstraint(nodes=frozenset({"n1"}))),
            groups(),
            "its volumes are on nodes that are there",
        ),
        (
            Request(where=where(**{NODE_GROUP: "named"})),
            groups(named=NodeGroupSpec(node_names=("n1",))),
            "the node groups (`named`) have no labels that new nodes could have",
        ),
    ],
)
def test_nodes_that_would_not_help_are_not_asked_for(
    request_: Request, known: NodeGroups, why: str
) -> None:
    with pytest.raises(NoNewNodes) as error:
        pod_sets(job(request_), None, known)
    assert str(error.value) == why


def pod(name: str, gpus: int = 1, **spec: Any) -> Pod:
    resources = {"requests": {"cpu": "1"}, "limits": {"nvidia.com/gpu": str(gpus)}}
    secret = {"name": "TOKEN", "value": "secret"}
    told = {
        "metadata": {"name": name, "namespace": "x", "uid": name, "labels": {"app": "t"}},
        "spec": {
            "serviceAccountName": "theirs",
            "containers": [
                {
                    "name": "main",
                    "image": "private.example.org/x",
                    "env": [secret],
                    "command": ["run", "secret"],
                    "resources": resources,
                    "ports": [{"containerPort": 80}, {"containerPort": 90, "hostPort": 91}],
                }
            ],
            **spec,
        },
    }
    return msgspec.convert(told, Pod)


def test_pods_of_others_are_told_as_far_as_they_decide_where_they_fit() -> None:
    required = {"nodeSelectorTerms": [{"matchExpressions": [has("a", "1")]}]}
    key = "requiredDuringSchedulingIgnoredDuringExecution"
    toleration = {"key": "gpu", "operator": "Exists"}
    spec: dict[str, Any] = {
        "nodeSelector": {"pool": "a"},
        "affinity": {"nodeAffinity": {key: required}},
        "tolerations": [toleration],
        "volumes": [{"name": "tmp", "emptyDir": {}}],
        "nodeName": "",
    }
    pods = [pod("p0", **spec), pod("p1", **spec), pod("p2", gpus=2)]
    allowed = (IN_GROUP, frozenset({"g"}))
    requests = [Request(gpus=one, where=NodeConstraint(labels=(allowed,))) for one in (1, 1, 2)]
    known = groups(g=NodeGroupSpec(match_labels={"g": "1"}))
    two, large = pod_sets(job(*requests), pods, known)
    assert (two.count, large.count, two.labels) == (2, 1, {"app": "t"})
    sent, text = written(two), str(written(two))
    assert "secret" not in text
    assert "private" not in text
    assert "theirs" not in text
    assert sent["nodeSelector"] == {"pool": "a"}
    assert sent["tolerations"] == [toleration]
    [term] = terms(sent)
    assert term["matchExpressions"] == [has("a", "1"), has("g", "1")]
    [container] = sent["containers"]
    assert container["ports"] == [{"containerPort": 91, "hostPort": 91, "protocol": "TCP"}]
    assert "volumes" not in sent
