"""What can never be is said at submission, with the limit that makes it so."""

import pytest

from carrel_scheduler.core.errors import InvalidEvent
from carrel_scheduler.core.events import Preemptibility, TaskPlaced, TopologySet, WorkloadQueued
from carrel_scheduler.core.explaining import impossible
from carrel_scheduler.core.gangs import Group, Level
from carrel_scheduler.core.reasons import Reason, ReasonClass, Token
from carrel_scheduler.core.requests import HOST, NodeConstraint
from carrel_scheduler.core.speculation import never
from carrel_scheduler.core.state import State
from unit.core.situations import asking, node, queue, state_of, training, workspace


@pytest.fixture
def state() -> State:
    """Eight GPUs in two racks, four of them in use; the quota of `a` is 2, the limit of `b` 3."""
    return state_of(
        TopologySet("t", ("rack",)),
        node("n1", 4, labels=(("rack", "r1"),), gpu_memory_mib=40960),
        node("n2", 4, labels=(("rack", "r2"),), draining=True),
        queue("dep", 6, limit=7),
        queue("a", 2, parent="dep"),
        queue("b", 8, limit=3, parent="dep"),
        queue("c", 2, over_quota=False),
        queue("open"),
        training("x", "open", 4),
        TaskPlaced("x", 0, "n1", (0, 1, 2, 3), 1.0),
    )


def test_what_may_be_later_is_not_refused(state: State) -> None:
    for event in (
        training("y", "open", 4),
        training("y", "open", 4, tasks=2),
        workspace("y", "a", 2),
        training("y", "a", 4),
        training("y", "b", 3),
        training("y", "open", 0.5),
        training("y", "open", request=asking(0, gpu_memory_mib=8192)),
        training("y", "open", gang=Group(requests=(asking(4),) * 9, min_tasks=2)),
    ):
        assert never(state, event) is None


def test_gpus_of_unknown_memory_serve_no_request_by_memory() -> None:
    smallest = training("y", "open", request=asking(0, gpu_memory_mib=1, share_milli=0))
    refusal = never(state_of(node("n", 4), queue("open")), smallest)
    assert refusal is not None
    assert refusal.token is Token.NO_ELIGIBLE_NODE


def test_what_nodes_have_is_looked_at_anew_when_they_change(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = training("y", "open", 1, cpu=65)
    assert facts(never(state, large)) == (Token.NEVER_FITS, "cpu", 65_000, 64_000)
    state.apply(node("n2", 4, cpu=65, labels=(("rack", "r2"),), draining=True))
    assert never(state, large) is None
    monkeypatch.setattr(impossible, "MOST_LOOKS", 1)
    for cpu in (63, 64, 66):
        assert (never(state, training("y", "open", 1, cpu=cpu)) is None) == (cpu < 66)
    assert state.cache.views is not None
    assert state.cache.views[1].looks <= 1


def facts(reason: Reason | None) -> tuple[object, ...]:
    assert reason is not None
    assert reason.cls is ReasonClass.NEVER
    return reason.token, reason.resource, reason.requested, reason.bound


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (training("y", "open", 5), (Token.NEVER_FITS, "gpu", 5000, 4000)),
        (training("y", "open", 1, cpu=65), (Token.NEVER_FITS, "cpu", 65_000, 64_000)),
        (
            training("y", "open", 1, memory_gib=300),
            (Token.NEVER_FITS, "memory", 300 * 1024, 256 * 1024),
        ),
        (training("y", "open", 4, tasks=3), (Token.NEVER_FITS, "gpu", 12_000, 8000)),
        (workspace("y", "a", 3), (Token.NON_PREEMPTIBLE_BEYOND_QUOTA, "gpu", 3000, 2000)),
        (
            workspace("y", "b", 3, tasks=2),
            (Token.OVER_LIMIT, "gpu", 6000, 3000),
        ),
        (training("y", "b", 4), (Token.OVER_LIMIT, "gpu", 4000, 3000)),
        (training("y", "a", 4, tasks=2), (Token.OVER_LIMIT, "gpu", 8000, 7000)),
        (training("y", "c", 3), (Token.OVER_QUOTA_OFF, "gpu", 3000, 2000)),
        (
            training("y", "open", request=asking(1, extended=(("nic", 1),))),
            (Token.NEVER_FITS, "nic", 1, 0),
        ),
    ],
)
def test_limits_of_nodes_and_queues(
    state: State, event: WorkloadQueued, expected: tuple[object, ...]
) -> None:
    assert facts(never(state, event)) == expected


def test_the_queue_whose_rule_it_is_is_named(state: State) -> None:
    found = never(state, training("y", "a", 4, tasks=2))
    assert found is not None
    assert found.project == "dep"
    fits_nowhere = never(state, training("y", "a", 5))
    assert fits_nowhere is not None
    assert (fits_nowhere.project, fits_nowhere.nodes) == ("a", ("n1",))


def test_conditions_on_nodes(state: State) -> None:
    found = never(state, training("y", "a", nodes=["gone"]))
    assert found is not None
    assert (found.token, found.detail) == (Token.NO_ELIGIBLE_NODE, "to be one of `gone`")
    memory = never(state, training("y", "a", request=asking(0, gpu_memory_mib=81920)))
    assert facts(memory)[0] in (Token.NO_ELIGIBLE_NODE, Token.NEVER_FITS)


def test_levels_and_members_apart(state: State) -> None:
    rack = Level(required="rack")
    wide = training("y", "open", gang=Group(requests=(asking(1),) * 5, level=rack))
    assert facts(never(state, wide)) == (Token.TOPOLOGY_TOO_SMALL, "tasks", 5, 4)
    parts = tuple(Group(requests=(asking(1),) * size, level=rack) for size in (3, 5))
    nested = training("y", "open", gang=Group(groups=parts))
    assert facts(never(state, nested)) == (Token.TOPOLOGY_TOO_SMALL, "tasks", 5, 4)
    unlike = Group(requests=(asking(1), asking(2)), level=rack)
    after = training("y", "open", gang=Group(groups=(unlike, parts[1])))
    assert facts(never(state, after)) == (Token.TOPOLOGY_TOO_SMALL, "tasks", 5, 4)
    apart = asking(1, where=NodeConstraint(apart=HOST))
    spread = training("y", "open", gang=Group(requests=(apart,) * 3))
    assert facts(never(state, spread)) == (Token.TOPOLOGY_TOO_SMALL, "tasks", 3, 2)
    unknown = training("y", "open", gang=Group(requests=(asking(1),), level=Level(required="zone")))
    assert facts(never(state, unknown)) == (Token.TOPOLOGY_TOO_SMALL, "tasks", 1, 0)


def test_a_protected_core_needs_quota(state: State) -> None:
    core = Group(requests=(asking(1),) * 4, min_tasks=3)
    event = training("y", "a", gang=core, preemptible=Preemptibility.SURPLUS)
    assert facts(never(state, event)) == (
        Token.NON_PREEMPTIBLE_BEYOND_QUOTA,
        "gpu",
        3000,
        2000,
    )


def test_what_means_nothing_is_an_error(state: State) -> None:
    with pytest.raises(InvalidEvent, match="unknown_queue"):
        never(state, training("y", "nobody"))
    with pytest.raises(InvalidEvent, match="bad_amount"):
        never(state, training("y", "a", tasks=0))


def test_asking_changes_nothing(state: State) -> None:
    version, jobs = state.version, len(state.jobs.by_uid)
    never(state, training("y", "open", 3))
    assert (state.version, len(state.jobs.by_uid), state.waiting.count) == (version, jobs, 0)
