"""A large gang gets its turn under an endless stream of small work of its own priority."""

import pytest

from carrel_scheduler.core.events import Event, NodeSet
from carrel_scheduler.core.settings import Settings
from unit.core.runs import Run
from unit.core.situations import asking, node, queue, training, workspace

DELAY_S = 600.0
SMALL_RUNS_S = 100.0
BOUND_S = DELAY_S + 2 * SMALL_RUNS_S + 2 * SMALL_RUNS_S
"""The reservation delay, twice the longest run time of others, and the grain of these stories."""


def waits(run: Run, small: str, *, most: int = 40, priority: int = 50) -> float | None:
    """Seconds until ``big`` starts while small work of a queue ends and follows for ever."""
    began, number = run.now, 0
    while run.now < began + most * SMALL_RUNS_S:
        half_of_them_end(run)
        for _ in range(8):
            number += 1
            run.submit(training(f"small-{number}-{run.now}", small, priority=priority))
        run.wait(SMALL_RUNS_S / 2)
        if "big" in run.running():
            return run.now - began
    return None


def half_of_them_end(run: Run) -> None:
    """On every node the four oldest, so that no node is ever empty by chance."""
    by_node: dict[str, list[str]] = {}
    for uid in run.running():
        if uid.startswith("small"):
            by_node.setdefault(run.nodes_of(uid)[0], []).append(uid)
    for uids in by_node.values():
        for uid in sorted(uids, key=lambda uid: (run.state.job(uid).started, uid))[:4]:
            run.finish(uid)


def full_of_small(*more: Event, reservation_delay_s: float = DELAY_S, **rules: float) -> Run:
    """Two nodes of eight GPUs full of small work; `big` needs a whole one."""
    events = (node("n1", 8), node("n2", 8), queue("a", 16, **rules), *more)
    run = Run(*events, settings=Settings(reservation_delay_s=reservation_delay_s))
    run.submit(*(training(f"small-{k}", "a") for k in range(16)))
    run.wait(0)
    run.submit(training("big", "a", 8))
    return run


def test_small_work_of_its_own_queue_does_not_hold_it_up_for_ever() -> None:
    took = waits(full_of_small(), "a")
    assert took is not None
    assert DELAY_S < took <= BOUND_S


def test_nor_does_work_of_lower_priority_that_is_protected() -> None:
    took = waits(full_of_small(preempt_min_runtime_s=1e9), "a", priority=40)
    assert took is not None
    assert DELAY_S < took <= BOUND_S


def test_nor_do_older_claims_that_can_never_be_served() -> None:
    run = full_of_small(queue("z", 0, limit=1, created_at=1.0))
    for number in range(9):
        run.submit(training(f"violation-{number}", "z", 2, cpu=1 + number, created_at=-1.0))
    run.submit(training("nowhere", "a", 8, nodes=["elsewhere"], created_at=-1.0))
    took = waits(run, "a")
    assert took is not None
    assert took <= BOUND_S


def test_nor_does_one_that_finds_no_node_now() -> None:
    run = Run(
        node("n1", 8), node("n2", 8), queue("a", 18), settings=Settings(reservation_delay_s=600.0)
    )
    run.submit(workspace("desk", "a", 1, request=asking(1)))
    run.wait(0)
    run.submit(*(training(f"small-{k}", "a") for k in range(15)))
    run.wait(0)
    run.submit(training("blocked", "a", 8, nodes=run.nodes_of("desk")[:1]))
    run.wait(1)
    run.submit(training("big", "a", 8))
    took = waits(run, "a")
    assert took is not None
    assert took <= BOUND_S + SMALL_RUNS_S


@pytest.mark.parametrize(
    "unusable",
    [
        node("n2", 8, broken_devices=frozenset({0})),
        node("n2", 8, schedulable=False),
        node("n2", 8, draining=True),
    ],
)
def test_what_no_node_could_hold_at_present_holds_nobody_up(unusable: NodeSet) -> None:
    """`n2` would hold `big` once it is in service as a whole; small work does not wait for that."""
    run = Run(node("n1", 4), unusable, queue("a", 16), settings=Settings(reservation_delay_s=600.0))
    run.submit(training("big", "a", request=asking(8, cpu=0, memory_gib=0)))
    run.wait(DELAY_S + 1)
    run.submit(training("small", "a"))
    run.wait(1)
    assert run.running() == ["small"]
    assert not run.state.reserved
    run.tell(node("n2", 8))
    run.wait(1)
    assert run.running() == ["big", "small"]


def test_without_reservations_it_waits_as_long_as_there_is_small_work() -> None:
    """What the reservation is for: the very same story without it."""
    assert waits(full_of_small(reservation_delay_s=-1.0), "a") is None


@pytest.mark.parametrize("reservation_delay_s", [60.0, 900.0])
def test_the_reservation_delay_is_a_setting(reservation_delay_s: float) -> None:
    took = waits(full_of_small(reservation_delay_s=reservation_delay_s), "a")
    assert took is not None
    assert reservation_delay_s < took <= reservation_delay_s + 4 * SMALL_RUNS_S


def reserved() -> Run:
    """`big` has waited so long that a node is held for it, on which protected work still runs."""
    protected = queue("a", 8, reclaim_min_runtime_s=1e9)
    settings = Settings(reservation_delay_s=DELAY_S)
    run = Run(node("n1", 8), node("n2", 8), protected, queue("b", 8), settings=settings)
    run.submit(*(training(f"small-{k}", "a") for k in range(16)))
    run.wait(0)
    run.submit(training("big", "b", 8))
    run.wait(DELAY_S + 1)
    assert "big" in run.state.reserved
    return run


def one_more_than_half_ends(run: Run) -> None:
    """Nine GPUs become free, spread over both nodes."""
    for node_name, count in (("n1", 5), ("n2", 4)):
        here = [uid for uid in run.running() if run.nodes_of(uid) == [node_name]]
        for uid in here[:count]:
            run.finish(uid)


def test_work_moves_for_who_waits_on_others_to_end() -> None:
    run = reserved()
    one_more_than_half_ends(run)
    run.wait(1)
    run.wait(run.grace + 1)
    assert "big" in run.running()
    assert {token for tokens in run.evicted.values() for token in tokens} == {"Consolidated"}


def test_it_starts_elsewhere_as_soon_as_it_fits_there() -> None:
    run = reserved()
    (held,) = {place.node for _, place in run.state.reserved["big"].reservation}
    elsewhere = {"n1", "n2"} - {run.state.nodes.names[held]}
    for uid in [uid for uid in run.running() if set(run.nodes_of(uid)) == elsewhere]:
        run.finish(uid)
    run.wait(1)
    assert set(run.nodes_of("big")) == elsewhere


def test_places_that_are_being_freed_are_waited_for() -> None:
    run = reserved()
    (held,) = {place.node for _, place in run.state.reserved["big"].reservation}
    name = run.state.nodes.names[held]
    for uid in [uid for uid in run.running() if run.nodes_of(uid) == [name]]:
        run.stop(uid)
    before = run.state.reserved["big"].reservation
    run.wait(1)
    assert run.state.reserved["big"].reservation == before
    assert run.evicted == {}
