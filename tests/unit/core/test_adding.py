"""How others add an action or a score: the examples of docs/core.md, run.

The page shows the functions of this file as they are, and a test compares them. What it lists of
actions and reasons is compared with the code, too.
"""

import inspect
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from carrel_scheduler.core.actions.reservations import start_reserved
from carrel_scheduler.core.columns import Columns
from carrel_scheduler.core.cycle.cycle import Cycle
from carrel_scheduler.core.cycle.failed_searches import OfferResult, answered
from carrel_scheduler.core.cycle.moves import Cause
from carrel_scheduler.core.cycle.offers import Offers
from carrel_scheduler.core.cycle.placing import place
from carrel_scheduler.core.decide import ACTIONS, Action, decide
from carrel_scheduler.core.layers import Counts
from carrel_scheduler.core.reasons import Token
from carrel_scheduler.core.requests import NodeConstraint
from carrel_scheduler.core.work.jobs import JobInfo
from unit.core.runs import Run, text_of
from unit.core.situations import asking, node, queue, running, state_of, training, workspace

PAGE = (Path(__file__).parents[3] / "docs" / "core.md").read_text()


# The example of an action


def leave_broken(cycle: Cycle) -> None:
    """Move what may be stopped off broken GPUs, as far as it has another place."""
    state, moves = cycle.state, cycle.moves
    by_job: dict[int, list[int]] = {}
    for row in on_broken_gpus(state).tolist():
        if not moves.evicted[row]:
            by_job.setdefault(int(state.tasks.job[row]), []).append(int(state.tasks.index[row]))
    for job in sorted(map(state.jobs.at, by_job), key=lambda job: job.order):
        if cycle.answered(job):
            continue
        mark, indices = moves.mark(), sorted(by_job[job.slot])
        for index in indices:
            moves.evict(job, index, Cause(Token.NODE_DRAINED))
        if not place(cycle, job, indices, soon=True):
            moves.rollback(mark)


def on_broken_gpus(state: Columns) -> Counts:
    """Rows of the tasks that may be stopped and hold a broken device."""
    nodes, tasks = state.nodes, state.tasks
    bits = np.uint64(1) << np.arange(len(nodes.usable), dtype=np.uint64)
    broken = (~nodes.usable * bits[:, None]).sum(axis=0, dtype=np.uint64)
    return np.flatnonzero((tasks.victim >= 0) & (tasks.mask & broken.take(tasks.node) > 0))


# The example of a score


def near_own(cycle: Cycle) -> None:
    """Start waiting work where its queue runs already, since its images and data are there."""
    rows = np.flatnonzero(cycle.state.waiting.need)
    Offers(cycle, rows, ()).run(lambda job, step: start_near_own(cycle, job, step))


def start_near_own(cycle: Cycle, job: JobInfo, step: tuple[int, ...]) -> OfferResult:
    """Start a step on the nodes with most tasks of the same queue."""
    if cycle.over_limit(job, step) is not None:
        return OfferResult.NO
    return answered(place(cycle, job, step, soon=False, score=own_tasks(cycle.state, job.queue)))


def own_tasks(state: Columns, queue: int) -> Counts:
    """(N,) how many tasks of a queue each node has; larger is taken first."""
    rows = state.tasks.used()
    mine = rows.compress(state.jobs.queue.take(state.tasks.job.take(rows)) == queue)
    return np.bincount(state.tasks.node.take(mine), minlength=len(state.nodes.schedulable))


WITH_LEAVE_BROKEN: Sequence[Action] = (*ACTIONS, leave_broken)
WITH_NEAR_OWN: Sequence[Action] = (start_reserved, near_own, *ACTIONS[1:])


# They work


def two_nodes(actions: Sequence[Action], *more: str) -> Run:
    """A training on GPU 0 of `n1`, which has just broken; `n2` is as large, unless told so."""
    run = Run(node("n1", 2), queue("a", 4), actions=actions)
    run.submit(training("job", "a"))
    run.settle()
    run.tell(node("n1", 2, broken_devices=frozenset({0})), *(node(name, 2) for name in more))
    return run


def test_work_leaves_a_broken_gpu_and_goes_on_elsewhere() -> None:
    run = two_nodes(WITH_LEAVE_BROKEN, "n2")
    plan = run.wait()
    assert [(one.uid, one.moved) for one in plan.evictions] == [("job", True)]
    run.settle()
    assert run.running() == ["job"]
    (row,) = run.state.job("job").rows.values()
    assert run.nodes_of("job") == ["n2"] or run.state.tasks.footprint(row).devices == (1,)


def test_without_the_action_it_stays() -> None:
    run = two_nodes(ACTIONS, "n2")
    assert not run.wait().evictions


def test_work_without_another_place_stays_on_its_broken_gpu() -> None:
    run = two_nodes(WITH_LEAVE_BROKEN)
    run.submit(training("other", "a"))
    run.settle()
    assert run.running() == ["job", "other"]
    assert not run.evicted


def test_what_may_not_be_stopped_stays_on_its_broken_gpu() -> None:
    broken = frozenset({0})
    state = state_of(
        node("n1", 1, broken_devices=broken),
        node("n2", 1),
        queue("a", 2),
        *running(workspace("desk", "a"), "n1", 0),
    )
    assert not decide(state, 1.0, WITH_LEAVE_BROKEN).evictions


@pytest.mark.parametrize(("actions", "expected"), [(ACTIONS, "n1"), (WITH_NEAR_OWN, "n2")])
def test_a_score_leads_to_the_nodes_of_the_own_queue(
    actions: Sequence[Action], expected: str
) -> None:
    state = state_of(
        node("n1", 4),
        node("n2", 4),
        queue("a", 4),
        queue("b", 4),
        *running(training("b1", "b", 2), "n1", 0, 1),
        *running(training("a1", "a", 1), "n2", 0),
        training("a2", "a"),
    )
    (binding,) = decide(state, 10.0, actions).bindings
    assert (binding.uid, binding.node) == ("a2", expected)


def test_a_score_never_outweighs_what_must_be() -> None:
    state = state_of(
        node("n1", 4),
        node("n2", 1),
        queue("a", 4),
        *running(training("a1", "a", 1), "n2", 0),
        training("a2", "a"),
        training("late", "a", 4),
    )
    plan = decide(state, 10.0, WITH_NEAR_OWN)
    assert [(one.uid, one.node) for one in plan.bindings] == [("a2", "n1")]


def test_a_preferred_label_needs_no_code() -> None:
    where = NodeConstraint(preferred=(("dataset", frozenset({"imagenet"})),))
    state = state_of(
        node("n1", 4),
        node("n2", 4, labels=(("dataset", "imagenet"),)),
        queue("a", 4),
        training("job", "a", request=asking(where=where)),
        training("any", "a", created_at=1.0),
    )
    plan = decide(state, 10.0)
    assert {one.uid: one.node for one in plan.bindings} == {"job": "n2", "any": "n2"}


@pytest.mark.parametrize("actions", [WITH_LEAVE_BROKEN, WITH_NEAR_OWN])
def test_examples_decide_the_same_every_time(actions: Sequence[Action]) -> None:
    plans = set()
    for _ in range(2):
        run = two_nodes(actions, "n2", "n3")
        run.submit(*(training(f"t{number}", "a") for number in range(4)))
        plans.add(text_of(run.wait()))
    assert len(plans) == 1


# The page says what the code says


@pytest.mark.parametrize(
    "example", [leave_broken, on_broken_gpus, near_own, start_near_own, own_tasks]
)
def test_the_page_shows_the_examples_as_they_are(example: Callable[..., object]) -> None:
    assert inspect.getsource(example) in PAGE


def section(title: str) -> str:
    """The text below a heading of the page, down to the next one of any depth."""
    (found,) = re.findall(
        rf"^#+ {re.escape(title)}\n(.*?)(?=^#+ |\Z)", PAGE, re.MULTILINE | re.DOTALL
    )
    return str(found)


def test_the_page_lists_the_actions_in_their_order() -> None:
    found = re.findall(r"^\d+\. \*\*([\w ]+)\*\*", section("A cycle"), re.MULTILINE)
    named = [name.replace(" ", "_") for name in found]
    short = [
        rule.name if (rule := getattr(one.action, "__self__", None)) else one.action.__name__
        for one in ACTIONS
    ]
    assert named == short


def test_the_page_has_every_reason() -> None:
    named = set(re.findall(r"`([A-Z]\w+)`", section("Reasons")))
    assert {str(token) for token in Token} <= named
