"""Limits in groups of nodes as the service tells them to the core, and admission by them."""

from pathlib import Path

import pytest

from carrel_scheduler.policy.admission import NotAdmitted, admit
from carrel_scheduler.workloads.reconcile.live import LiveView
from carrel_schema.objects import Meta, Resources, Workload, WorkloadSpec
from unit.workloads.conftest import opened
from unit.workloads.test_open_groups import MachineDesk


async def test_work_waits_for_the_limit_of_the_machines_group(
    empty_ledger: Path, tmp_path: Path
) -> None:
    """On one machine the only group is called after its GPUs."""
    async with opened(empty_ledger, tmp_path, 4, MachineDesk) as desk:
        await desk.recover()
        (group,) = desk.loop.external_pods.node_groups()
        await desk.project("vision", 4, node_group_limits={group: 1.5})
        first = await desk.submit("vision", "first", gpus=1)
        second = await desk.submit("vision", "second", gpus=1)
        assert await desk.phases(first, second) == ["starting", "pending"]
        reason = (await desk.stored(second)).status.reason
        assert reason is not None
        assert reason.token == "OverNodeGroupLimit"
        assert reason.sentence == (
            f"With it `vision` would hold 2 GPUs in node group `{group}`, and its limit there is "
            "1.5 GPUs."
        )
        spec = WorkloadSpec(kind="training", user="ada", resources=Resources(gpu_milli=2000))
        asked = Workload(meta=Meta(name="job", project="vision", uid="u"), spec=spec)
        with pytest.raises(NotAdmitted) as refused:
            admit(asked, LiveView(desk.loop))
        assert (refused.value.code, refused.value.field) == ("limit_never_met", "gpus")
