"""Nodes of a cluster whose GPUs the scheduler divides: what is placed there, and what is not."""

from functools import partial
from typing import Any

import msgspec
import pytest

from carrel_scheduler.core.mig import counted_gpu_milli
from carrel_scheduler.engines.external import ExternalEvents
from carrel_scheduler.engines.kubernetes.external_pods.messages import AllReconciled, NodeSeen
from carrel_scheduler.engines.kubernetes.external_pods.nodes import facts_of
from carrel_scheduler.engines.kubernetes.pods.nodes import node_set
from carrel_scheduler.engines.kubernetes.pods.types import Node
from carrel_scheduler.engines.kubernetes.tasks.manifest import check_runnable
from carrel_scheduler.engines.kubernetes.tasks.settings import PodSettings
from carrel_scheduler.workloads.admission import NotAdmitted, admit
from carrel_scheduler.workloads.launch import fitting
from carrel_scheduler.workloads.reconcile.live import LiveState
from carrel_scheduler.workloads.reconcile.recovery import recover
from carrel_schema.objects import Meta, Resources, Workload, WorkloadSpec
from unit.workloads.harness import SchedulerHarness

MODEL = "A100-80GB"
DIVIDED = "GPUs of `divided` are divided into MIG instances"


def divided(model: str = MODEL, gpus: int = 2, name: str = "divided") -> Node:
    amounts = {"nvidia.com/gpu": str(gpus), "cpu": "64", "memory": "256Gi"}
    labels = {"carrel.dev/mig-model": model} if model else {}
    told = {
        "metadata": {"name": name, "labels": labels},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    return msgspec.convert(told, Node)


async def see(harness: SchedulerHarness, *nodes: Node) -> None:
    harness.loop.enqueue(ExternalEvents((*map(NodeSeen, nodes), AllReconciled())))
    await harness.settle()


@pytest.fixture
async def cluster(harness: SchedulerHarness) -> SchedulerHarness:
    """A node with four whole GPUs, and one with two that are divided."""
    await see(harness, divided(), divided("", 4, "plain"))
    await harness.project("vision", 6)
    return harness


async def submit(
    harness: SchedulerHarness, name: str, profile: str, monkeypatch: pytest.MonkeyPatch
) -> str:
    def resources(**_: object) -> Resources:
        return Resources(mig_profile=profile)

    with monkeypatch.context() as patch:
        patch.setattr("unit.workloads.harness.Resources", resources)
        return await harness.submit("vision", name)


async def test_an_instance_lies_where_nothing_else_does_and_counts_as_its_part(
    cluster: SchedulerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    uids = [await submit(cluster, f"job-{n}", "3g.40gb", monkeypatch) for n in range(5)]
    await cluster.runs(*uids[:4])
    placed = [cluster.engine.specs[task] for uid in uids[:4] for task in cluster.tasks_of(uid)]
    assert {(one.node, one.mig_profile) for one in placed} == {("divided", "3g.40gb")}
    assert len({(one.devices, one.mig_slots) for one in placed}) == 4
    assert {one.mig_slots for one in placed} == {0x0F, 0xF0}
    assert await cluster.phase(uids[4]) == "pending"
    live = LiveState(cluster.loop)
    assert live.project_use()["vision"].gpu_allocated_milli == 2000
    (node,) = [one for one in live.nodes() if one.name == "divided"]
    assert (node.gpu_milli, node.gpu_allocated_milli) == (2000, 2000)
    await cluster.ends(uids[0])
    await cluster.runs(uids[4])


async def test_whole_gpus_and_shares_are_given_elsewhere(cluster: SchedulerHarness) -> None:
    uids = [await cluster.submit("vision", f"whole-{n}", gpus=1) for n in range(4)]
    await cluster.runs(*uids)
    later = await cluster.submit("vision", "later", gpus=1)
    await cluster.settle()
    assert await cluster.phase(later) == "pending"
    assert {one.node for one in cluster.engine.specs.values()} == {"plain"}
    waits = (await cluster.stored(later)).status.reason
    assert waits is not None
    assert "all 4 are in use" in waits.sentence
    assert waits.sentence.endswith(f"{DIVIDED}: ask for the MIG profile `7g.80gb` to get one.")
    many = await cluster.submit("vision", "many", gpus=2)
    await cluster.settle()
    waits = (await cluster.stored(many)).status.reason
    assert waits is not None
    assert waits.sentence.endswith(f"{DIVIDED}, of which a task has one only.")


async def test_a_scheduler_that_starts_again_knows_the_places(
    cluster: SchedulerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await submit(cluster, "first", "4g.40gb", monkeypatch)
    await cluster.runs(first)
    place = cluster.loop.cache.get(first)
    assert place is not None
    before = dict(place.places)
    cluster.facts = facts_of(divided(), node_set(divided()))
    await cluster.recover()
    await see(cluster, divided())
    after = cluster.loop.cache.get(first)
    assert after is not None
    assert after.places == before
    assert await cluster.phase(first) == "running"


async def test_a_node_that_ceases_to_be_divided_ends_nothing_and_takes_nothing(
    cluster: SchedulerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await submit(cluster, "first", "3g.40gb", monkeypatch)
    await cluster.runs(first)
    await see(cluster, divided(""))
    second = await submit(cluster, "second", "3g.40gb", monkeypatch)
    await cluster.settle()
    assert await cluster.phases(first, second) == ["running", "pending"]
    large = [await cluster.submit("vision", f"whole-{n}", gpus=2) for n in range(3)]
    await cluster.settle()
    assert await cluster.phase(large[2]) == "pending"
    await cluster.ends(first)
    await see(cluster, divided(""))
    await cluster.runs(large[2])


async def test_work_on_instances_of_an_admin_goes_on_when_others_begin_to_be_made(
    harness: SchedulerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after a restart of the scheduler."""
    amounts = {"nvidia.com/mig-1g.10gb": "7", "cpu": "64", "memory": "256Gi"}
    status = {"capacity": amounts, "allocatable": amounts}
    told = {"metadata": {"name": "by-hand"}, "status": status}
    by_hand = msgspec.convert(told, Node)
    await see(harness, by_hand)
    await harness.project("vision", 6)
    first = await submit(harness, "first", "1g.10gb", monkeypatch)
    await harness.runs(first)
    await see(harness, by_hand, divided())
    both = [facts_of(one, node_set(one)) for one in (by_hand, divided())]
    harness.loop = harness._fresh()
    await recover(harness.loop, both, await harness.engine.list())
    await harness.settle()
    await see(harness, by_hand, divided())
    assert await harness.phase(first) == "running"
    assert not LiveState(harness.loop).faults().set_aside
    second = await submit(harness, "second", "1g.10gb", monkeypatch)
    await harness.runs(second)
    assert [harness.engine.specs[task].node for task in harness.tasks_of(second)] == ["divided"]


async def test_a_model_that_nobody_knows_sets_the_node_aside(harness: SchedulerHarness) -> None:
    await see(harness, divided("A100"))
    [fault] = LiveState(harness.loop).faults().set_aside
    assert (fault.source, fault.key) == ("node", "divided")
    assert "carrel.dev/mig-model" in fault.message
    assert "A100-80GB" in fault.message


def work(**fields: Any) -> Workload:
    spec = WorkloadSpec(kind="training", user="ada", command=["true"], **fields)
    return Workload(meta=Meta(name="job", project="vision", uid="u"), spec=spec)


async def test_what_a_share_is_depends_on_what_nodes_there_are(harness: SchedulerHarness) -> None:
    """A share becomes an instance only where all GPUs are divided."""
    await see(harness, divided(), divided("", 4, "plain"))
    await harness.project("vision", 6)
    fits = fitting.on_cluster(partial(check_runnable, settings=PodSettings(image="trainer")))
    live, asked = LiveState(harness.loop, fits), Resources(gpu_milli=250)
    share = work(resources=asked)
    admit(share, live)
    assert share.spec.resources == asked
    harness.facts = facts_of(divided(), node_set(divided()))
    await harness.recover()
    await see(harness, divided())
    live = LiveState(harness.loop, fitting.on_cluster(lambda _: None))
    share = work(resources=asked)
    admit(share, live)
    assert share.spec.resources.mig_profile == "2g.20gb"
    with pytest.raises(NotAdmitted) as refused:
        admit(work(resources=Resources(gpu_milli=250, gpu_devices=2)), live)
    assert (refused.value.code, refused.value.field) == ("no_mig", "gpu_devices")
    external = work(resources=Resources(gpu_milli=250), external=True)
    admit(external, live)
    assert external.spec.resources.mig_profile == "2g.20gb"


@pytest.mark.parametrize("external", [False, True], ids=["a job", "a pod of the Hub"])
async def test_a_whole_gpu_is_the_largest_instance_where_nodes_give_nothing_else(
    harness: SchedulerHarness, *, external: bool
) -> None:
    whole = Resources(gpu_milli=1000)
    await see(harness, divided(), divided("", 4, "plain"))
    await harness.project("vision", 6)
    live = LiveState(harness.loop, fitting.on_cluster(lambda _: None))
    beside = work(resources=whole, external=external)
    admit(beside, live)
    assert beside.spec.resources == whole, "another node has whole ones"
    harness.facts = facts_of(divided(), node_set(divided()))
    await harness.recover()
    await see(harness, divided())
    live = LiveState(harness.loop, fitting.on_cluster(lambda _: None))
    only = work(resources=whole, external=external)
    admit(only, live)
    found = only.spec.resources
    assert (found.mig_profile, found.gpu_milli, counted_gpu_milli(found)) == ("7g.80gb", 0, 1000)
    with pytest.raises(NotAdmitted) as refused:
        admit(work(resources=Resources(gpu_milli=2000), external=external), live)
    assert (refused.value.code, refused.value.field, refused.value.value) == ("no_mig", "gpus", 2)
    assert "one only" in refused.value.detail


def by_hand(**instances: int) -> Node:
    """A node whose GPUs an admin divided: as many instances by the number of their slices."""
    names = {"one": "1g.10gb", "one_media": "1g.10gb.me", "two": "2g.20gb", "three": "3g.40gb"}
    found = {f"nvidia.com/mig-{names[name]}": str(most) for name, most in instances.items()}
    amounts = {"nvidia.com/gpu": "0", "cpu": "64", "memory": "256Gi", **found}
    status = {"capacity": amounts, "allocatable": amounts}
    return msgspec.convert({"metadata": {"name": "by-hand"}, "status": status}, Node)


@pytest.mark.parametrize(
    ("asked", "profile"),
    [(Resources(gpu_milli=100), "1g.10gb"), (Resources(gpu_milli=130), "2g.20gb")],
)
@pytest.mark.parametrize("external", [False, True], ids=["a job", "a workspace of the Hub"])
async def test_a_share_that_no_node_gives_is_the_smallest_instance_that_holds_it(
    harness: SchedulerHarness, asked: Resources, profile: str, *, external: bool
) -> None:
    harness.facts = facts_of(by_hand(), node_set(by_hand()))
    await harness.recover()
    await see(harness, by_hand(one=4, one_media=1, two=2))
    await harness.project("vision", 6)
    live = LiveState(harness.loop, fitting.on_cluster(lambda _: None))
    job = work(resources=asked, external=external)
    admit(job, live)
    found = job.spec.resources
    assert (found.mig_profile, found.gpu_milli) == (profile, 0)
    uid = await harness.submit("vision", "job", resources=found)
    [task] = harness.tasks_of(uid)
    assert harness.engine.specs[task].mig_profile == profile


def cordoned(node: Node) -> Node:
    return msgspec.convert(msgspec.to_builtins(node) | {"spec": {"unschedulable": True}}, Node)


@pytest.mark.parametrize("instances", [divided(), by_hand(one=4, two=2)], ids=["made", "by hand"])
async def test_a_share_waits_for_a_cordoned_node_that_shares_gpus_and_is_told_of_instances(
    harness: SchedulerHarness, instances: Node
) -> None:
    """What it becomes at submission depends on the nodes that there are, in service or not."""
    plain = cordoned(divided("", 1, "plain"))
    harness.facts = facts_of(plain, node_set(plain))
    await harness.recover()
    await see(harness, plain, instances)
    await harness.project("vision", 6)
    live = LiveState(harness.loop, fitting.on_cluster(lambda _: None))
    job = work(resources=Resources(gpu_milli=250))
    admit(job, live)
    assert not job.spec.resources.mig_profile
    uid = await harness.submit("vision", "job", resources=job.spec.resources)
    waits = (await harness.stored(uid)).status.reason
    assert waits is not None
    assert waits.sentence == (
        "`plain` is the only one that could hold it and takes no new work. "
        f"GPUs of `{instances.metadata.name}` are divided into MIG instances: "
        "ask for the MIG profile `2g.20gb` to get one."
    )


@pytest.mark.parametrize("milli", [300, 1000])
async def test_what_no_instance_holds_is_refused_with_what_there_is(
    harness: SchedulerHarness, milli: int
) -> None:
    """An instance that is less is given to nobody who does not ask for it."""
    harness.facts = facts_of(by_hand(), node_set(by_hand()))
    await harness.recover()
    await see(harness, by_hand(one=4, two=2))
    await harness.project("vision", 6)
    live = LiveState(harness.loop, fitting.on_cluster(lambda _: None))
    with pytest.raises(NotAdmitted) as refused:
        admit(work(resources=Resources(gpu_milli=milli)), live)
    found = refused.value
    assert (found.code, found.field, found.value) == ("never_fits", "gpus", milli / 1000)
    told = "GPUs of `by-hand` are divided into MIG instances: ask for the MIG profile `2g.20gb`"
    assert told in found.detail


async def test_nodes_of_two_models_say_what_they_give(harness: SchedulerHarness) -> None:
    """Then a whole GPU is no instance, as nobody knows of which of them."""
    first, second = divided(), divided("A30-24GB", name="other")
    harness.facts = facts_of(first, node_set(first))
    await harness.recover()
    await see(harness, first, second)
    await harness.project("vision", 6)
    live = LiveState(harness.loop, fitting.on_cluster(lambda _: None))
    with pytest.raises(NotAdmitted) as refused:
        admit(work(resources=Resources(gpu_milli=1000)), live)
    assert (refused.value.code, refused.value.field) == ("never_fits", "gpus")
    assert "GPUs that are given as a whole" in refused.value.detail
    assert "GPUs of `divided` and `other` are divided" in refused.value.detail


async def test_nodes_that_are_closed_to_a_job_are_not_named(harness: SchedulerHarness) -> None:
    tainted = msgspec.to_builtins(divided())
    tainted["spec"] = {"taints": [{"key": "theirs", "effect": "NoSchedule"}]}
    await see(harness, msgspec.convert(tainted, Node), divided("", 1, "plain"))
    await harness.project("vision", 6)
    uids = [await harness.submit("vision", f"whole-{n}", gpus=1) for n in range(2)]
    await harness.settle()
    waits = (await harness.stored(uids[1])).status.reason
    assert waits is not None
    assert "in use" in waits.sentence
    assert "divided" not in waits.sentence


async def test_a_whole_gpu_of_divided_nodes_runs_as_an_instance(harness: SchedulerHarness) -> None:
    harness.facts = facts_of(divided(), node_set(divided()))
    await harness.recover()
    await see(harness, divided())
    await harness.project("vision", 6)
    live = LiveState(harness.loop, fitting.on_cluster(lambda _: None))
    job = work(resources=Resources(gpu_milli=1000))
    admit(job, live)
    asked = msgspec.structs.replace(job.spec.resources, cpu_milli=100, memory_bytes=1 << 20)
    uids = [
        await harness.submit("vision", name, resources=asked) for name in ("one", "two", "three")
    ]
    placed = [harness.engine.specs[task] for uid in uids for task in harness.tasks_of(uid)]
    assert [(one.mig_profile, one.mig_slots) for one in placed] == [("7g.80gb", 0xFF)] * 2
    assert len({one.devices for one in placed}) == 2
