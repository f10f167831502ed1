"""Limits in groups of nodes as the service tells them to the core, and admission by them."""

from pathlib import Path

import pytest

from carrel_scheduler.workloads.admission import NotAdmitted, admit
from carrel_scheduler.workloads.reconcile.live import LiveState
from carrel_schema.objects import Meta, Resources, Workload, WorkloadSpec
from unit.workloads.conftest import opened
from unit.workloads.harness import MachineHarness


async def test_work_waits_for_the_limit_of_the_machines_group(
    empty_ledger: Path, tmp_path: Path
) -> None:
    """On one machine the only group is called after its GPUs."""
    async with opened(empty_ledger, tmp_path, 4, MachineHarness) as harness:
        await harness.recover()
        (group,) = harness.loop.external_pods.node_groups()
        await harness.project("vision", 4, node_group_limits={group: 1.5})
        first = await harness.submit("vision", "first", gpus=1)
        second = await harness.submit("vision", "second", gpus=1)
        assert await harness.phases(first, second) == ["starting", "pending"]
        reason = (await harness.stored(second)).status.reason
        assert reason is not None
        assert reason.token == "OverNodeGroupLimit"
        assert reason.sentence == (
            f"With it `vision` would hold 2 GPUs in node group `{group}`, and its limit there is "
            "1.5 GPUs."
        )
        spec = WorkloadSpec(kind="training", user="ada", resources=Resources(gpu_milli=2000))
        asked = Workload(meta=Meta(name="job", project="vision", uid="u"), spec=spec)
        with pytest.raises(NotAdmitted) as refused:
            admit(asked, LiveState(harness.loop))
        assert (refused.value.code, refused.value.field) == ("limit_never_met", "gpus")


async def test_work_takes_back_what_is_guaranteed_in_the_machines_group(
    empty_ledger: Path, tmp_path: Path
) -> None:
    """Though whoever holds it is within the quota in all; and who gives way reads why."""
    async with opened(empty_ledger, tmp_path, 2, MachineHarness) as harness:
        await harness.recover()
        (group,) = harness.loop.external_pods.node_groups()
        await harness.project("vision", 1, node_group_quotas={group: 1})
        await harness.project("speech", 2)
        both = [await harness.submit("speech", f"job{i}", gpus=1) for i in range(2)]
        assert await harness.phases(*both) == ["starting", "starting"]
        mine = await harness.submit("vision", "mine", gpus=1)
        assert sorted(await harness.phases(*both)) == ["preempting", "starting"]
        (gone,) = [one for one in both if (await harness.phases(one)) == ["preempting"]]
        reason = (await harness.stored(gone)).status.reason
        assert reason is not None
        assert reason.sentence == (
            f"Preempted by `vision`, which reclaimed its guaranteed quota in node group `{group}` "
            "for `mine`."
        )
        assert await harness.phases(mine) == ["pending"]
