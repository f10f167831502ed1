"""What would unblock waiting work, as the scheduler tells it."""

from typing import Any

import pytest

from carrel_scheduler.core.speculation import Remedy, RemedyKind
from carrel_scheduler.workloads.reconcile.live import LiveState
from carrel_scheduler.workloads.state.cache import department_queue
from carrel_scheduler.workloads.state.remedies import from_core, without_names
from carrel_schema.sections import InferenceSpec
from unit.workloads.harness import SchedulerHarness

KIND = RemedyKind
SENTENCES = [
    (
        Remedy(KIND.QUOTA, "a", "gpu", 6000),
        "An admin could raise the quota of project `a` to 6 GPUs.",
    ),
    (
        Remedy(KIND.LIMIT, department_queue("arts"), "gpu", 1500),
        "An admin could raise the limit of department `arts` to 1.5 GPUs.",
    ),
    (
        Remedy(KIND.LIMIT, "a", "memory", 3 * 1024),
        "An admin could raise the limit of project `a` to 3 GiB of memory.",
    ),
    (
        Remedy(KIND.GROUP_LIMIT, "a", "gpu", 2000, group="a100"),
        "An admin could raise the limit of project `a` in node group `a100` to 2 GPUs.",
    ),
    (
        Remedy(KIND.GROUP_QUOTA, "a", "gpu", 1000, group="a100"),
        "An admin could raise the quota of project `a` in node group `a100` to 1 GPU.",
    ),
    (
        Remedy(KIND.BORROW, "a"),
        "An admin could let project `a` borrow what others leave idle.",
    ),
    (Remedy(KIND.PREEMPTIBLE), "If you submit it as preemptible, it starts."),
    (
        Remedy(KIND.ENDS, "b", uid="u1", name="x"),
        "It starts when `x` of project `b` ends.",
    ),
]


@pytest.mark.parametrize(("found", "sentence"), SENTENCES)
def test_every_change_has_a_sentence(found: Remedy, sentence: str) -> None:
    told = from_core(found)
    assert (told.change, told.sentence) == (found.change.value, sentence)


def test_there_is_a_sentence_for_each_kind() -> None:
    assert {found.change for found, _ in SENTENCES} == set(RemedyKind)


def test_without_names_it_says_whose_work_ends() -> None:
    told = without_names(from_core(Remedy(KIND.ENDS, "b", uid="u1", name="x")))
    assert told.sentence == "It starts when work of a member of `b` ends."
    assert (told.project, told.workload, told.workload_uid) == ("b", "", "")


async def remedies(harness: SchedulerHarness, uid: str) -> list[tuple[str, str]]:
    found = LiveState(harness.loop).remedies(uid)
    return [(one.change, one.workload or one.project) for one in found]


async def test_a_waiting_training_is_told_each_change_that_helps(harness: SchedulerHarness) -> None:
    await harness.project("vision", 1)
    holder = await harness.submit("vision", "holder", preemptible=False)
    waiter = await harness.submit("vision", "waiter", preemptible=False)
    assert await harness.phases(holder, waiter) == ["starting", "pending"]
    assert await remedies(harness, waiter) == [
        ("preemptible", ""),
        ("more-quota", "vision"),
        ("ends", "holder"),
    ]
    assert await remedies(harness, holder) == [], "it does not wait"
    assert await remedies(harness, "nobody") == []
    await harness.change(waiter, suspend=True)
    assert await remedies(harness, waiter) == []


async def test_work_of_others_ends(harness: SchedulerHarness) -> None:
    await harness.project("vision", 4)
    await harness.submit("vision", "holder", 4)
    waiter = await harness.submit("vision", "waiter", 2)
    (told,) = LiveState(harness.loop).remedies(waiter)
    assert told.sentence == "It starts when `holder` of project `vision` ends."
    assert told.workload_uid


@pytest.mark.parametrize(
    ("kind", "changes"),
    [("notebook", ["preemptible", "more-quota", "ends"]), ("replica", ["more-quota", "ends"])],
)
async def test_who_has_no_choice_is_not_told_to_be_preemptible(
    harness: SchedulerHarness, kind: Any, changes: list[str]
) -> None:
    await harness.project("vision", 1)
    await harness.submit("vision", "holder", preemptible=False)
    section: dict[str, Any] = {"inference": InferenceSpec()} if kind == "replica" else {}
    waiter = await harness.submit("vision", "waiter", kind=kind, preemptible=False, **section)
    assert [change for change, _ in await remedies(harness, waiter)] == changes


async def test_work_that_its_users_limit_holds_back_asks_for_nothing(
    harness: SchedulerHarness,
) -> None:
    await harness.project("vision", 4, max_gpus_per_user=1)
    await harness.submit("vision", "holder")
    waiter = await harness.submit("vision", "waiter")
    assert await harness.phase(waiter) == "pending"
    assert await remedies(harness, waiter) == []
