"""For which work nodes are asked for, when again, and what people read of it."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from carrel_scheduler.engines.kubernetes.external_pods.messages import NodeDeleted
from carrel_scheduler.engines.kubernetes.provisioning.messages import RequestSeen
from carrel_scheduler.engines.kubernetes.provisioning.types import (
    ProvisioningRequest,
    request_name,
)
from carrel_scheduler.ledger.store import Change, ChangeType
from carrel_scheduler.workloads.admission import NotAdmitted, admit
from carrel_scheduler.workloads.reconcile.live import LiveState
from carrel_scheduler.workloads.state.events import ProjectChanged
from carrel_schema.objects import Meta, Resources, Workload, WorkloadSpec
from unit.provisioning.scaling import node, scaling


def asks(gpus: int, **spec: Any) -> Workload:
    resources = Resources(gpu_milli=gpus * 1000)
    made = WorkloadSpec(kind="training", user="ada", resources=resources, **spec)
    return Workload(meta=Meta(name="job", project="vision", uid="u"), spec=made)


async def test_work_that_no_node_could_hold_asks_for_nodes_and_starts_when_they_come(
    empty_ledger: Path, tmp_path: Path
) -> None:
    async with scaling(empty_ledger, tmp_path) as harness:
        await harness.project("vision", 4)
        uid = await harness.submit("vision", "big", gpus=2)
        await harness.wait(2.0)
        name = request_name(uid, 1)
        assert list(harness.requests) == [name]
        [order] = harness.asked
        assert (order.namespace, [one.count for one in order.sets]) == ("carrel-vision", [1])
        token, said = await harness.why(uid)
        assert token == "WaitsForNodes"
        assert said.endswith("the cluster's autoscaler has not answered yet.")
        await harness.answer("Accepted", "2 nodes\nof pool a")
        assert (await harness.why(uid))[1] == (
            "Waiting for nodes: the cluster's autoscaler looks for them "
            f"(`{name}`: 2 nodes of pool a)."
        )
        await harness.answer("Provisioned")
        assert "they are on their way" in (await harness.why(uid))[1]
        await harness.hear(node("new", 4))
        assert await harness.phase(uid) == "starting"
        await harness.wait(2.0)
        assert harness.requests == {}


async def test_nothing_is_asked_for_beyond_quota_with_all_requests_counted(
    empty_ledger: Path, tmp_path: Path
) -> None:
    async with scaling(empty_ledger, tmp_path) as harness:
        await harness.project("vision", 3)
        first = await harness.submit("vision", "first", gpus=2)
        second = await harness.submit("vision", "second", gpus=2)
        await harness.wait(2.0)
        assert harness.names() == ["first"]
        token, said = await harness.why(second)
        assert token == "NeverFits"
        assert said.endswith(
            "No nodes are asked for: with it `vision` would come to 4 GPUs, beyond its quota of "
            "3 GPUs."
        )
        await harness.change(first, suspend=True)
        await harness.wait(2.0)
        assert harness.names() == ["second"]


async def test_a_request_is_withdrawn_when_its_work_is_cancelled_or_its_quota_goes(
    empty_ledger: Path, tmp_path: Path
) -> None:
    async with scaling(empty_ledger, tmp_path) as harness:
        project = await harness.project("vision", 8)
        gone = await harness.submit("vision", "gone", gpus=1)
        stays = await harness.submit("vision", "stays", gpus=1)
        await harness.wait(2.0)
        assert harness.names() == ["gone", "stays"]
        await harness.change(gone, suspend=True)
        await harness.wait(2.0)
        assert harness.names() == ["stays"]
        project.spec = msgspec.structs.replace(
            project.spec, quota=msgspec.structs.replace(project.spec.quota, gpu_milli=0)
        )
        stored = await harness.ledger.update(project)
        version = stored.meta.resource_version
        harness.loop.enqueue(ProjectChanged(Change(ChangeType.MODIFIED, version, stored)))
        await harness.settle()
        await harness.wait(2.0)
        assert harness.names() == []
        assert "beyond its quota of 0 GPUs" in (await harness.why(stays))[1]


async def test_a_failed_request_is_made_again_after_pauses_that_grow(
    empty_ledger: Path, tmp_path: Path
) -> None:
    async with scaling(empty_ledger, tmp_path) as harness:
        await harness.project("vision", 8)
        uid = await harness.submit("vision", "big")
        await harness.wait(2.0)
        await harness.answer("Failed", "out of stock")
        assert (await harness.why(uid))[1] == (
            "Waiting for nodes: the cluster's autoscaler could not add them "
            f"(`{request_name(uid, 1)}`: out of stock); tried again 60 s later."
        )
        await harness.wait(50.0)
        assert list(harness.requests) == [request_name(uid, 1)]
        await harness.wait(10.0)
        assert list(harness.requests) == [request_name(uid, 2)]
        await harness.answer("Failed", "out of stock")
        await harness.recover()  # another scheduler knows how many there were
        await harness.begin(node("desk", 0))
        await harness.wait(110.0)
        assert list(harness.requests) == [request_name(uid, 2)]
        assert (await harness.why(uid))[1].endswith("tried again 2 min later.")
        await harness.wait(10.0)
        assert list(harness.requests) == [request_name(uid, 3)]


@pytest.mark.parametrize("condition", ["BookingExpired", "CapacityRevoked"])
async def test_nodes_that_were_taken_away_again_are_asked_for_anew(
    empty_ledger: Path, tmp_path: Path, condition: str
) -> None:
    async with scaling(empty_ledger, tmp_path) as harness:
        await harness.project("vision", 8)
        uid = await harness.submit("vision", "big")
        await harness.wait(2.0)
        await harness.answer(condition)
        await harness.wait(60.0)
        assert list(harness.requests) == [request_name(uid, 2)]


async def test_nodes_that_came_and_do_not_serve_are_asked_for_anew(
    empty_ledger: Path, tmp_path: Path
) -> None:
    async with scaling(empty_ledger, tmp_path) as harness:
        await harness.project("vision", 8)
        uid = await harness.submit("vision", "big")
        await harness.wait(2.0)
        await harness.answer("Provisioned")
        await harness.wait(890.0)
        assert list(harness.requests) == [request_name(uid, 1)]
        await harness.wait(15.0)
        assert "nodes were added, and it did not fit there" in (await harness.why(uid))[1]
        await harness.wait(60.0)
        assert list(harness.requests) == [request_name(uid, 2)]


async def test_work_that_waits_for_room_asks_after_a_while_only(
    empty_ledger: Path, tmp_path: Path
) -> None:
    async with scaling(empty_ledger, tmp_path, node("full", 2)) as harness:
        await harness.project("vision", 8)
        first = await harness.submit("vision", "first", gpus=2)
        assert await harness.phase(first) == "starting"
        uid = await harness.submit("vision", "next", gpus=2)
        await harness.wait(58.0)
        assert harness.requests == {}
        assert (await harness.why(uid))[0] == "WaitsForRoom"
        await harness.wait(5.0)
        assert harness.names() == ["next"]
        assert (await harness.why(uid))[0] == "WaitsForNodes"


async def test_a_cluster_without_nodes_asks_at_once(empty_ledger: Path, tmp_path: Path) -> None:
    async with scaling(empty_ledger, tmp_path) as harness:
        await harness.hear(NodeDeleted("desk"))
        assert not harness.loop.state.nodes.slots
        await harness.project("vision", 8)
        uid = await harness.submit("vision", "first", gpus=2)
        await harness.wait(2.0)
        assert harness.names() == ["first"]
        assert (await harness.why(uid))[0] == "WaitsForNodes"
        await harness.hear(node("new", 2))
        assert await harness.phase(uid) == "starting"


async def test_so_many_requests_are_open_and_no_more(empty_ledger: Path, tmp_path: Path) -> None:
    async with scaling(empty_ledger, tmp_path) as harness:
        await harness.project("vision", 8)
        uids = [await harness.submit("vision", f"job-{number}") for number in range(3)]
        await harness.wait(2.0)
        assert harness.names() == ["job-0", "job-1"]
        assert "2 requests are open, as many as may be" in (await harness.why(uids[2]))[1]
        await harness.change(uids[0], suspend=True)
        await harness.wait(3.0)
        assert harness.names() == ["job-1", "job-2"]


async def test_a_request_that_is_refused_is_made_again_later(
    empty_ledger: Path, tmp_path: Path
) -> None:
    async with scaling(empty_ledger, tmp_path) as harness:
        harness.refusal = "the kind is not there"
        await harness.project("vision", 8)
        uid = await harness.submit("vision", "big")
        await harness.wait(3.0)
        assert len(harness.asked) == 1
        assert (await harness.why(uid))[1] == (
            "Waiting for nodes: the request for them was refused (the kind is not there); "
            "tried again 60 s later."
        )
        harness.refusal = ""
        await harness.wait(62.0)
        assert harness.names() == ["big"]


async def test_a_gang_is_one_request_with_all_its_pods(empty_ledger: Path, tmp_path: Path) -> None:
    async with scaling(empty_ledger, tmp_path) as harness:
        await harness.project("vision", 8)
        await harness.submit("vision", "gang", gpus=2, kind="distributed", tasks=3)
        await harness.wait(2.0)
        [order] = harness.asked
        [pods] = order.sets
        assert pods.count == 3
        [container] = pods.spec["containers"]
        assert container["resources"]["limits"] == {"nvidia.com/gpu": "2"}


async def test_requests_of_others_under_our_marks_are_left_alone(
    empty_ledger: Path, tmp_path: Path
) -> None:
    async with scaling(empty_ledger, tmp_path) as harness:
        await harness.project("vision", 8)
        uid = await harness.submit("vision", "big")
        marks = {"carrel.dev/workload-uid": uid, "carrel.dev/workload": "big"}
        failed = {"conditions": [{"type": "Failed", "status": "True", "message": "by me"}]}
        for name, space in (("carrel-mine-1", "carrel-vision"), (request_name(uid, 7), "theirs")):
            meta = {"name": name, "namespace": space, "uid": name, "annotations": marks}
            told = {"metadata": meta, "status": failed}
            await harness.hear(RequestSeen(msgspec.convert(told, ProvisioningRequest)))
        await harness.wait(3.0)
        assert "by me" not in (await harness.why(uid))[1]
        assert harness.names() == ["big"]


async def test_admission_and_forecast_count_on_nodes_within_quota(
    empty_ledger: Path, tmp_path: Path
) -> None:
    async with scaling(empty_ledger, tmp_path) as harness:
        await harness.project("vision", 4)
        live = LiveState(harness.loop)
        admit(asks(4), live)
        assert live.forecast(asks(4)).token == "WaitsForNodes"
        assert live.forecast(asks(5)).token == "NeverFits"
        with pytest.raises(NotAdmitted, match="left out: there are none"):
            admit(asks(4, node_group="nowhere"), live)


async def test_without_the_setting_it_is_refused(empty_ledger: Path, tmp_path: Path) -> None:
    async with scaling(empty_ledger, tmp_path) as harness:
        harness.pods.current.node_requests = None
        await harness.project("vision", 4)
        with pytest.raises(NotAdmitted) as refused:
            admit(asks(4), LiveState(harness.loop))
        assert refused.value.code == "never_fits"
