"""Quotas in groups of nodes among many victims, who are searched over arrays."""

import pytest

from carrel_scheduler.core.cycle import cycle
from carrel_scheduler.core.settings import Settings
from unit.core.node_groups import asked, grouped, guaranteed, held_there
from unit.core.runs import Run
from unit.core.situations import node, queue, training


@pytest.mark.parametrize("tasks", [1, 3, 40])
def test_many_victims_are_searched_over_arrays(tasks: int) -> None:
    """Beyond sixty tasks that may be stopped: as many go as are needed, and none that is kept."""
    nodes = [grouped(f"a{i:02}", 8, "a100") for i in range(6)]
    nodes += [grouped(f"h{i:02}", 8, "h100") for i in range(6)]
    rules = guaranteed("vision", 40, a100=40), guaranteed("speech", 48, a100=8), queue("more", 48)
    run = Run(*nodes, *rules)
    for owner in ("speech", "more"):
        run.submit(*(training(f"{owner}{i}", owner) for i in range(48)))
        run.settle()
    run.submit(training("gang", "vision", tasks=tasks, request=asked("a100")))
    evictions = run.step().evictions
    assert len(evictions) == tasks
    assert {one.reason.detail for one in evictions} == {"a100"}
    run.settle()
    assert run.sizes()["gang"] == tasks
    assert held_there(run, "speech") >= 8


def test_a_quota_in_all_takes_nothing_that_is_kept_among_many() -> None:
    nodes = [grouped(f"a{i:02}", 8, "a100") for i in range(5)]
    nodes += [grouped(f"h{i:02}", 8, "h100") for i in range(5)]
    run = Run(*nodes, guaranteed("vision", 40, a100=40), queue("speech", 40))
    run.submit(*(training(f"v{i}", "vision") for i in range(80)))
    run.settle()
    run.submit(*(training(f"s{i}", "speech", 2) for i in range(20)))
    run.settle()
    assert held_there(run, "vision") == 40
    assert held_there(run, "speech", "h100") == 40


@pytest.mark.parametrize(("tasks", "gpus"), [(20, 2), (5, 8)])
def test_in_a_large_cluster_what_is_beyond_the_quota_there_is_taken_for_one_in_all(
    monkeypatch: pytest.MonkeyPatch, tasks: int, gpus: int
) -> None:
    """Forty of the eighty that `vision` holds in the group are kept for it, and no more."""
    monkeypatch.setattr(cycle, "SMALL_CLUSTER", 0)
    nodes = [grouped(f"a{i:02}", 8, "a100") for i in range(10)]
    run = Run(*nodes, guaranteed("vision", 40, a100=40), queue("speech", 40))
    run.submit(*(training(f"v{i}", "vision") for i in range(80)))
    run.settle()
    run.submit(training("s", "speech", gpus, tasks=tasks))
    assert len(run.step().evictions) == 40
    run.settle()
    assert (held_there(run, "vision"), held_there(run, "speech")) == (40, 40)


def test_settings_of_a_hunt_reach_both_searches() -> None:
    """A cluster that is not small, with a short reservation delay: no search is left out."""
    run = Run(
        *(node(f"n{i}", 8, labels=(("node group", "a100"),)) for i in range(9)),
        guaranteed("vision", 36, a100=36), queue("speech", 72),
        settings=Settings(reservation_delay_s=1.0, search_steps=3),
    )  # fmt: skip
    run.submit(*(training(f"s{i}", "speech") for i in range(72)))
    run.settle()
    run.submit(*(training(f"v{i}", "vision", 4) for i in range(9)))
    run.settle()
    assert held_there(run, "vision") == 36
