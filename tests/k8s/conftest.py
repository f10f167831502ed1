"""Fixtures: one cluster for all tests that need one; its parts start on first use."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from k8s import outcomes
from k8s.cluster import binaries, control_plane, running, tiers
from k8s.cluster import infrastructure as node_infrastructure
from k8s.cluster import node as nodes
from k8s.cluster.control_plane import ControlPlane
from k8s.cluster.images.builder import Image
from k8s.cluster.infrastructure import Infrastructure
from k8s.cluster.loading import Images
from k8s.cluster.node import Node
from k8s.cluster.records import Record
from k8s.device_driver import DeviceDriver, driven_node
from k8s.device_plugin import UUIDS, plugged_node

HERE = Path(__file__).parent
# They read what waiting pods are told, which names nodes that others left, too; or what shares of
# GPUs become, for which all nodes count.
ALONE = (
    "test_instances_by_claims",
    "test_peers_places",
    "test_peers_quota",
    "test_quota_bypasses",
    "test_scheduling",
    "test_scheduling_fencing",
    "test_spawner",
)
INSTALLING = (
    *("test_engine_story", "test_shared_gpus_story", "test_kinds", "test_guide"),
    *("test_rbac", "test_access_rules", "test_work_policies", "test_attacks"),
    *("test_attacks_of_members", "test_own_accounts"),
)
# A test that is the first to ask for it starts a cluster, a node, and loads its images.
TIMEOUT_SECONDS = 900


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """First what wants its own nodes only, then real ones, last what changes the whole cluster."""
    for item in items:
        if item.path.parent == HERE and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TIMEOUT_SECONDS))
    needs = {item: getattr(item, "fixturenames", ()) for item in items}
    with_nodes = {item.path for item in items if "infrastructure" in needs[item]}

    def turn(item: pytest.Item) -> int:
        if item.path.parent != HERE:
            return -len(ALONE) - 2
        if item.path.stem in ALONE:
            return ALONE.index(item.path.stem) - len(ALONE) - 1
        if item.path.stem in INSTALLING:
            return 1 + INSTALLING.index(item.path.stem)
        return 0 if item.path in with_nodes else -1

    items.sort(key=turn)


@pytest.fixture(scope="session")
def record() -> Iterator[Record]:
    """The record of what this run puts into the machine; all of it is removed at the end."""
    made = Record.begin()
    try:
        yield made
    finally:
        made.end()


@pytest.fixture(scope="session")
def plane(record: Record, pytestconfig: pytest.Config) -> ControlPlane:
    """A running control plane. Its programs are built at the first use on a machine."""
    named = os.environ.get(tiers.RUNNING)
    if named:
        outcomes.ran(pytestconfig, tiers.CONTROL_PLANE, f"ran on the cluster of {named}")
        return running.read(Path(named), record.folder)
    try:
        programs = binaries.control_plane(_say)
    except binaries.NotBuilt as failed:
        outcomes.cannot(pytestconfig, tiers.CONTROL_PLANE, str(failed))
    outcomes.ran(pytestconfig, tiers.CONTROL_PLANE)
    return control_plane.start(programs, record)


@pytest.fixture(scope="session")
def infrastructure(
    record: Record, plane: ControlPlane, pytestconfig: pytest.Config
) -> Infrastructure:
    """The infrastructure of nodes, where they can run."""
    reason = tiers.why_no_node()
    if reason:
        outcomes.cannot(pytestconfig, tiers.NODE, reason)
    try:
        programs = binaries.node(_say)
    except binaries.NotBuilt as failed:
        outcomes.cannot(pytestconfig, tiers.NODE, str(failed))
    outcomes.ran(pytestconfig, tiers.NODE)
    return node_infrastructure.prepare(programs, plane, record)


@pytest.fixture(scope="session")
def node(infrastructure: Infrastructure) -> Node:
    """A node that runs real pods: ``worker-1``, which offers eight GPUs (that are not there)."""
    made = nodes.start(infrastructure, "worker-1")
    made.give(gpus=8)
    return made


@pytest.fixture(scope="session")
def driver(infrastructure: Infrastructure) -> Iterator[DeviceDriver]:
    """The node ``worker-2``, with a driver of two GPUs for claims."""
    with driven_node(infrastructure, "worker-2", ("gpu-0", "gpu-1")) as made:
        yield made


@pytest.fixture(scope="session")
def plugged(infrastructure: Infrastructure, node: Node, driver: DeviceDriver) -> Iterator[Node]:
    """The node ``worker-3``, whose two GPUs a device plugin offers.

    The last that starts: kubelets that start later would take its plugin's devices for theirs.
    """
    with plugged_node(infrastructure, "worker-3", UUIDS) as made:
        yield made


@pytest.fixture(scope="session")
def kubectl(plane: ControlPlane) -> Path:
    """The program, of the control plane's version."""
    return binaries.control_plane(_say)["kubectl"]


@pytest.fixture(scope="session")
def images() -> Images:
    """``images.on(node, "trainer").name`` is what a pod on that node names."""
    return Images(_say)


@pytest.fixture(scope="session")
def base_image(images: Images, node: Node) -> Image:
    """A Debian with Python 3 as ``python3``, loaded on ``node``."""
    return images.on(node, "base")


@pytest.fixture(scope="session")
def trainer_image(images: Images, node: Node) -> Image:
    """``images/trainer``, loaded on ``node``."""
    return images.on(node, "trainer")


@pytest.fixture(scope="session")
def workspace_image(images: Images, node: Node) -> Image:
    """``images/workspace``, loaded on ``node``."""
    return images.on(node, "workspace")


@pytest.fixture(scope="session")
def scheduler_image(images: Images, node: Node) -> Image:
    """``images/scheduler``, loaded on ``node``."""
    return images.on(node, "scheduler")


@pytest.fixture(scope="session")
def hub_image(images: Images, node: Node) -> Image:
    """``images/hub``, loaded on ``node``."""
    return images.on(node, "hub")


def _say(line: str) -> None:
    print(line, flush=True)
