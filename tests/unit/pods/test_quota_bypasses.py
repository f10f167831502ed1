"""Ways past a quota by what a pod says: each is counted in full, or refused with what is right."""

from typing import Any

import pytest

from carrel_scheduler.engines.kubernetes.binding import read_devices
from carrel_scheduler.engines.kubernetes.pods.quantities import PodRefused
from carrel_scheduler.engines.kubernetes.pods.resource_requests import needs_of, total_of
from unit.pods.making import container, pod
from unit.pods.owners import PROJECTS, World

GPU = "nvidia.com/gpu"


def gpus(count: str, **more: Any) -> dict[str, Any]:
    return container(requests={GPU: count}, **more)


def sidecar(count: str) -> dict[str, Any]:
    return gpus(count, restartPolicy="Always")


@pytest.mark.parametrize(
    ("inits", "main", "counted"),
    [
        ([gpus("8")], "1", 8),  # an init container alone
        ([sidecar("3")], "1", 4),  # a sidecar runs beside the containers
        ([sidecar("1"), sidecar("2"), gpus("4")], "1", 7),  # and beside later init containers
        ([gpus("4"), sidecar("3")], "1", 4),
    ],
)
def test_sidecars_and_init_containers_are_counted(
    inits: list[dict[str, Any]], main: str, counted: int
) -> None:
    found = pod(initContainers=inits, containers=[gpus(main)])
    assert needs_of(found).gpus == counted
    assert total_of(found)[GPU] == counted * 10**9


def test_limits_without_requests_are_counted() -> None:
    only = {"name": "main", "resources": {"limits": {GPU: "4"}}}
    assert needs_of(pod(initContainers=[only], containers=[only])).gpus == 4


def test_the_overhead_of_a_runtime_is_counted_beyond_the_largest_init_container() -> None:
    found = pod(
        initContainers=[container(requests={"cpu": "4"})],
        containers=[container(requests={"cpu": "1"})],
        overhead={"cpu": "500m"},
    )
    assert needs_of(found).cpu_milli == 4500


@pytest.mark.parametrize(
    "parts",
    [
        {"containers": [gpus("-1"), gpus("4")]},
        {"containers": [gpus("4")], "initContainers": [gpus("-8")]},
        {"containers": [gpus("4")], "overhead": {GPU: "-3"}},
        {"containers": [container(requests={"cpu": "-1"})]},
        {"containers": [container()], "resources": {"requests": {"cpu": "-5"}}},
    ],
)
def test_negative_amounts_are_refused(parts: dict[str, Any]) -> None:
    with pytest.raises(PodRefused, match="at least 0"):
        needs_of(pod(**parts))


@pytest.mark.parametrize(
    ("resource", "amount"),
    [
        ("cpu", "9223372036854775807"),
        ("cpu", "1e30"),
        ("cpu", "1000001"),
        ("memory", "10E"),
        ("memory", "9223372036854775807"),
        (GPU, "65537"),
        (GPU, "1e30"),
        ("ephemeral-storage", "16Ei"),
        ("hugepages-2Mi", "8Ei"),
        ("rdma/hca", "9223372036854775807"),
    ],
)
def test_more_than_any_node_has_is_refused_with_what_is_right(resource: str, amount: str) -> None:
    with pytest.raises(PodRefused) as refused:
        needs_of(pod(containers=[container(requests={resource: amount})]))
    assert (refused.value.code, refused.value.field) == ("too_much", f"resources.{resource}")
    assert "or less" in refused.value.sentence


def test_amounts_are_not_lost_by_spreading_them_over_containers() -> None:
    """Sums wrap round nowhere: two halves of 2^64 are not nothing."""
    half = container(requests={"rdma/hca": str(2**63 - 1)})
    with pytest.raises(PodRefused, match="too_much"):
        needs_of(pod(containers=[half, half, half]))


@pytest.mark.parametrize(
    "said",
    [
        {"labels": {"carrel.dev/priority": "9" * 63}},
        {"annotations": {"carrel.dev/priority": "9" * 5000}},
        {"labels": {"carrel.dev/priority": "-99999999999"}},
        {"annotations": {"carrel.dev/min-members": "9" * 5000}},
        {"labels": {"carrel.dev/min-members": "100001"}},
        {"labels": {"carrel.dev/min-members": "0"}},
    ],
)
async def test_absurd_numbers_in_labels_are_refused(said: dict[str, Any]) -> None:
    world = World()
    owner = world.add("batch/v1/Job", "job", {"parallelism": 2})
    with pytest.raises(PodRefused, match="a number from"):
        await world.grouper.group(pod(owner=owner, **said))


@pytest.mark.parametrize("total", ["9" * 5000, "-1", "two", "0"])
async def test_absurd_sizes_of_groups_are_refused(total: str) -> None:
    key = "kueue.x-k8s.io/pod-group-name"
    asked = pod(labels={key: "g"}, annotations={"kueue.x-k8s.io/pod-group-total-count": total})
    with pytest.raises(PodRefused, match="a number from"):
        await World().grouper.group(asked)


def test_absurd_devices_of_a_binding_are_none() -> None:
    assert read_devices("9" * 5000) is None


async def test_an_owner_that_is_named_with_another_uid_is_no_owner() -> None:
    world = World()
    owner = world.add(
        "kubeflow.org/v1/PyTorchJob",
        "theirs",
        {"pytorchReplicaSpecs": {"Worker": {"replicas": 2}}},
        labels={"carrel.dev/project": "speech", "carrel.dev/user": "grace"},
    )
    forged = pod(owner={**owner, "uid": "forged"}, labels={"carrel.dev/user": "ada"})
    found = (await world.grouper.group(forged)).grouping
    assert (found.project, found.user, found.is_gang) == ("default", "ada", False)


@pytest.mark.parametrize("project", PROJECTS)
async def test_in_a_projects_namespace_no_owner_says_for_whom_a_pod_counts(project: str) -> None:
    world = World(shared=project)
    owner = world.add("batch/v1/Job", "theirs", {}, labels={"carrel.dev/project": project})
    counted = (await world.grouper.group(pod(namespace="shared", owner=owner))).grouping
    assert counted.project == project
    other = next(name for name in PROJECTS if name != project)
    lying = world.add("batch/v1/Job", "lying", {}, labels={"carrel.dev/project": other})
    with pytest.raises(PodRefused, match="other_project"):
        await world.grouper.group(pod(namespace="shared", owner=lying))
