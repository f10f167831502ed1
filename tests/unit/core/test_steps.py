"""What starts next, what goes first, what runs in vain."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carrel_scheduler.core.gangs import Group, Growth, leaves
from carrel_scheduler.core.requests import Request
from carrel_scheduler.core.work.gang_steps import (
    LeafState,
    Step,
    Structure,
    first_step,
    is_stale,
    next_step,
    ready,
    satisfied,
    shed_steps,
    stale_tasks,
    structure_of,
)

ONE = Request(gpus=1)


def leaf(
    tasks: int, least: int | None = None, name: str = "", growth: Growth = Growth.ONE
) -> Group:
    return Group(name, (ONE,) * tasks, least, growth=growth)


def inner(*groups: Group, least: int | None = None, name: str = "") -> Group:
    return Group(name, groups=groups, min_groups=least)


def states(group: Group, running: list[int], waiting: list[int] | None = None) -> list[LeafState]:
    """The first so many tasks of each leaf run; all others wait, or the next so many do."""
    found, start = [], 0
    for number, part in enumerate(leaves(group)):
        size = len(part.requests)
        first = start + running[number]
        last = start + size if waiting is None else min(first + waiting[number], start + size)
        found.append(LeafState(tuple(range(first, last)), tuple(range(start, first))))
        start += size
    return found


def offered(group: Group, running: list[int], waiting: list[int] | None = None) -> Step:
    return next_step(structure_of(group), states(group, running, waiting))


def sheds(group: Group, running: list[int]) -> list[tuple[int, ...]]:
    return [step.tasks for step in shed_steps(structure_of(group), states(group, running))]


class TestStart:
    def test_a_gang_starts_as_a_whole(self) -> None:
        assert offered(leaf(3), [0]) == ((0, 1, 2),)

    def test_with_its_minimum_first(self) -> None:
        assert offered(leaf(5, 2), [0]) == ((0, 1),)

    def test_what_is_missing_is_one_step(self) -> None:
        assert offered(leaf(5, 4), [1]) == ((1, 2, 3),)

    def test_or_nothing(self) -> None:
        assert offered(leaf(3), [0], waiting=[2]) == ()
        assert offered(inner(leaf(1), leaf(2)), [0, 0], waiting=[1, 1]) == ()

    def test_all_required_groups_together(self) -> None:
        assert offered(inner(leaf(2, 1), leaf(3, 2)), [0, 0]) == ((0,), (2, 3))

    def test_groups_that_are_complete_are_left_alone(self) -> None:
        assert offered(inner(leaf(3, 2), leaf(2)), [2, 0]) == ((), (3, 4))

    def test_only_as_many_groups_as_are_missing(self) -> None:
        group = inner(*(leaf(1, name=name) for name in "abc"), least=2)
        assert offered(group, [0, 0, 0]) == ((0,), (1,), ())
        assert offered(group, [0, 0, 1]) == ((0,), (), ())

    def test_by_name_then_place(self) -> None:
        assert offered(inner(leaf(1, name="b"), leaf(1, name="a"), least=1), [0, 0]) == ((), (1,))
        assert offered(inner(leaf(1), leaf(1), least=1), [0, 0]) == ((0,), ())

    def test_what_has_been_begun_before_what_has_not(self) -> None:
        group = inner(leaf(1, name="a"), leaf(2, name="b"), least=1)
        assert offered(group, [0, 1]) == ((), (2,))

    def test_a_group_that_cannot_start_is_passed_over(self) -> None:
        group = inner(leaf(2, name="a"), leaf(1, name="b"), least=1)
        assert offered(group, [0, 0], waiting=[1, 1]) == ((), (2,))

    def test_nested_minima(self) -> None:
        pair = inner(leaf(1, name="a"), leaf(1, name="b"), least=1, name="x")
        both = inner(leaf(1, name="c"), leaf(1, name="d"), name="y")
        assert offered(inner(pair, both), [0, 0, 0, 0]) == ((0,), (), (2,), (3,))

    def test_who_succeeded_is_not_waited_for(self) -> None:
        state = [LeafState(pending=(1,), running=(2,), succeeded=1)]
        assert next_step(structure_of(leaf(3)), state) == ((1,),)
        two = structure_of(inner(leaf(3), leaf(1)))
        assert next_step(two, [*state, LeafState(running=(3,))]) == ((1,), ())

    def test_nothing_waits(self) -> None:
        assert offered(leaf(2), [2]) == ()
        assert offered(leaf(0), [0]) == ()
        assert offered(inner(leaf(1), leaf(1)), [1, 1]) == ()


class TestSurplus:
    def test_one_task_at_a_time(self) -> None:
        assert offered(leaf(5, 2), [2]) == ((2,),)
        assert offered(leaf(5, 2), [5]) == ()

    def test_doublings(self) -> None:
        group = leaf(8, 1, growth=Growth.DOUBLE)
        assert [offered(group, [size]) for size in (0, 1, 2, 4, 8)] == [
            ((0,),),
            ((1,),),
            ((2, 3),),
            ((4, 5, 6, 7),),
            (),
        ]

    def test_a_doubling_only_whole(self) -> None:
        group = leaf(6, 2, growth=Growth.DOUBLE)
        assert offered(group, [2]) == ((2, 3),)
        assert offered(group, [2], waiting=[1]) == ()
        assert offered(group, [4]) == ()

    def test_back_onto_the_sizes_after_a_loss(self) -> None:
        assert offered(leaf(8, 2, growth=Growth.DOUBLE), [3]) == ((3,),)

    def test_from_nothing(self) -> None:
        assert offered(leaf(4, 0, growth=Growth.DOUBLE), [0]) == ((0,),)
        assert offered(leaf(4, 0), [0]) == ((0,),)

    def test_a_surplus_group_whole(self) -> None:
        group = inner(leaf(2, name="a"), leaf(2, name="b"), least=1)
        assert offered(group, [2, 0]) == ((), (2, 3))
        assert offered(group, [2, 0], waiting=[0, 1]) == ()

    def test_the_group_below_its_minimum_before_single_tasks(self) -> None:
        group = inner(leaf(3, 1, name="a"), leaf(2, name="b"), least=1)
        assert offered(group, [1, 0]) == ((), (3, 4))
        assert offered(group, [1, 2]) == ((1,), ())

    def test_the_group_that_has_its_minimum_less_often(self) -> None:
        group = inner(leaf(9, 2, name="a"), leaf(9, 1, name="b"))
        assert offered(group, [3, 2]) == ((3,), ())
        assert offered(group, [4, 2]) == ((4,), ())
        assert offered(group, [5, 2]) == ((), (11,))

    def test_groups_with_a_minimum_before_those_without(self) -> None:
        group = inner(leaf(9, 0, name="a"), leaf(9, 1, name="b"), leaf(9, 0, name="c"))
        assert offered(group, [0, 5, 0]) == ((), (14,), ())
        assert offered(group, [1, 9, 0]) == ((), (), (18,))

    def test_a_deep_tree_fills_the_side_with_fewer_groups_beyond_its_minimum(self) -> None:
        """Both extra places go to c: its side has 2 of 2 groups, the other 2 of 1."""
        ab = inner(leaf(4, 1, name="a"), leaf(1, name="b"), least=1, name="ab")
        cd = inner(leaf(3, 1, name="c"), leaf(1, name="d"), name="cd")
        group = inner(ab, cd)
        assert offered(group, [2, 1, 1, 1]) == ((), (), (6,), ())
        assert offered(group, [2, 1, 2, 1]) == ((), (), (7,), ())
        assert offered(group, [2, 1, 3, 1]) == ((2,), (), (), ())

    def test_a_missing_group_before_a_surplus_one(self) -> None:
        """One of a and b is enough and a runs; c and d come first, then b."""
        ab = inner(leaf(1, name="a"), leaf(2, 1, name="b"), least=1, name="ab")
        cd = inner(leaf(2, 1, name="c"), leaf(2, 1, name="d"), name="cd")
        group = inner(ab, cd)
        assert offered(group, [1, 0, 0, 0]) == ((), (), (3,), (5,))
        assert offered(group, [1, 0, 1, 1]) == ((), (1,), (), ())


class TestShape:
    def test_equal_shapes_are_one_structure(self) -> None:
        other = Group("", (Request(gpus=4),) * 3, 2)
        assert structure_of(leaf(3, 2)) is structure_of(other)
        assert structure_of(leaf(3, 2)) is not structure_of(leaf(3))

    def test_a_group_around_one_group_is_that_group(self) -> None:
        assert structure_of(inner(inner(leaf(3, 2, name="x")))) is structure_of(leaf(3, 2))
        optional = inner(leaf(3, 2), least=0)
        assert structure_of(optional).single is None
        assert satisfied(structure_of(optional), [0])

    def test_the_first_step(self) -> None:
        assert first_step(structure_of(leaf(5, 2))) == (0, 1)
        assert first_step(structure_of(inner(leaf(3, 1), leaf(2), leaf(1), least=2))) == (0, 3, 4)

    def test_ready_counts_what_may_start(self) -> None:
        structure = structure_of(leaf(3, 2))
        assert ready(structure, [LeafState(pending=(0,), running=(1,))])
        assert not ready(structure, [LeafState(pending=(0,))])
        assert ready(structure, [LeafState(pending=(0,), succeeded=1)])
        tree = inner(leaf(2), leaf(1), least=1)
        assert ready(structure_of(tree), states(tree, [0, 0], waiting=[0, 1]))
        assert not ready(structure_of(tree), states(tree, [0, 0], waiting=[1, 0]))


class TestShedding:
    def test_a_gang_goes_whole(self) -> None:
        (only,) = shed_steps(structure_of(leaf(3)), states(leaf(3), [3]))
        assert (only.tasks, only.core) == ((0, 1, 2), True)

    def test_what_goes_whole_goes_with_its_surplus(self) -> None:
        group = replace(inner(leaf(3, 1), leaf(2, 1)), whole=True)
        (only,) = shed_steps(structure_of(group), states(group, [2, 2]))
        assert (only.tasks, only.core) == ((0, 1, 3, 4), True)
        assert list(shed_steps(structure_of(group), states(group, [0, 0]))) == []

    def test_nothing_runs(self) -> None:
        assert sheds(leaf(3), [0]) == []
        assert sheds(inner(leaf(1), leaf(1)), [0, 0]) == []

    def test_surplus_goes_one_by_one_from_the_end(self) -> None:
        group = leaf(4, 1)
        steps = list(shed_steps(structure_of(group), states(group, [4])))
        assert [step.tasks for step in steps] == [(3,), (2,), (1,), (0,)]
        assert [step.core for step in steps] == [False, False, False, True]

    def test_halves(self) -> None:
        group = leaf(8, 1, growth=Growth.DOUBLE)
        assert sheds(group, [8]) == [(7, 6, 5, 4), (3, 2), (1,), (0,)]
        assert sheds(group, [7]) == [(6, 5, 4), (3, 2), (1,), (0,)]
        assert sheds(leaf(8, 3, growth=Growth.DOUBLE), [8]) == [(7, 6), (5, 4, 3), (0, 1, 2)]

    def test_without_a_minimum_nothing_is_core(self) -> None:
        assert sheds(leaf(2, 0), [2]) == [(1,), (0,)]
        assert sheds(leaf(3, 0, growth=Growth.DOUBLE), [2]) == [(1,), (0,)]
        group = leaf(2, 0)
        assert not any(step.core for step in shed_steps(structure_of(group), states(group, [2])))

    def test_a_group_with_more_beyond_its_minimum_gives_first(self) -> None:
        group = inner(leaf(3, 1, name="a"), leaf(2, 1, name="b"))
        assert sheds(group, [3, 2]) == [(2,), (4,), (1,), (0, 3)]

    def test_surplus_groups_whole_after_all_surplus_tasks(self) -> None:
        group = inner(leaf(3, 2, name="a"), leaf(2, name="b"), leaf(2, name="c"), least=1)
        assert sheds(group, [3, 2, 2]) == [(2,), (6, 5), (4, 3), (0, 1)]

    def test_the_deepest_surplus_group_first(self) -> None:
        deep = inner(leaf(1, name="a"), leaf(1, name="b"), least=1, name="x")
        group = inner(deep, leaf(1, name="y"), least=1)
        assert sheds(group, [1, 1, 1]) == [(1,), (2,), (0,)]

    def test_a_broken_optional_group_before_a_working_one(self) -> None:
        group = inner(leaf(2, name="a"), leaf(2, name="b"), leaf(2, name="c"), least=1)
        assert sheds(group, [1, 2, 2]) == [(0,), (5, 4), (2, 3)]

    def test_surplus_goes_first_also_below_the_minimum(self) -> None:
        assert sheds(inner(leaf(3, 1), leaf(1)), [3, 0]) == [(2,), (1,), (0,)]

    def test_what_is_below_its_minimum_and_without_surplus_goes_at_once(self) -> None:
        group = inner(leaf(2, name="a"), leaf(2, name="b"))
        assert sheds(group, [2, 1]) == [(0, 1, 2)]

    def test_who_succeeded_counts_towards_the_core(self) -> None:
        state = [LeafState(running=(1, 2), succeeded=1)]
        found = [step.tasks for step in shed_steps(structure_of(leaf(3, 2)), state)]
        assert found == [(2,), (1,)]


class TestStale:
    def test_a_gang_below_its_minimum(self) -> None:
        structure = structure_of(leaf(3, 2))
        assert not is_stale(structure, [LeafState(running=(0, 1))])
        assert stale_tasks(structure, [LeafState(running=(2,))]) == (2,)
        assert not is_stale(structure, [LeafState(pending=(0, 1, 2))])

    def test_not_once_a_task_has_succeeded(self) -> None:
        assert not is_stale(structure_of(leaf(3)), [LeafState(running=(0,), succeeded=1)])
        tree = structure_of(inner(leaf(1), leaf(2)))
        assert not is_stale(tree, [LeafState(succeeded=1), LeafState(running=(1,))])

    def test_a_tree_below_its_minimum_goes_whole(self) -> None:
        group = inner(leaf(2), leaf(2))
        assert stale_tasks(structure_of(group), states(group, [2, 1])) == (0, 1, 2)

    def test_an_optional_group_without_tasks_is_not_stale(self) -> None:
        group = inner(leaf(2), leaf(2), least=1)
        assert not is_stale(structure_of(group), states(group, [2, 0]))

    def test_a_broken_optional_group_is_stale_alone(self) -> None:
        group = inner(leaf(2), leaf(2), least=1)
        assert stale_tasks(structure_of(group), states(group, [2, 1])) == (2,)

    def test_also_deep_down(self) -> None:
        deep = inner(leaf(1), leaf(2), least=1)
        group = inner(deep, leaf(1))
        assert stale_tasks(structure_of(group), states(group, [1, 1, 1])) == (1,)


# Random trees: the steps keep what the rules promise.

GROWTH = st.sampled_from(Growth)
EXAMPLES = 40


@st.composite
def leaf_groups(draw: st.DrawFn) -> Group:
    tasks = draw(st.integers(1, 5))
    least = draw(st.one_of(st.none(), st.integers(0, tasks)))
    return leaf(tasks, least, draw(st.sampled_from("abc")), draw(GROWTH))


@st.composite
def around(draw: st.DrawFn, children: st.SearchStrategy[Group]) -> Group:
    groups = draw(st.lists(children, min_size=1, max_size=3))
    least = draw(st.one_of(st.none(), st.integers(0, len(groups))))
    return inner(*groups, least=least, name=draw(st.sampled_from("xyz")))


TREES = st.recursive(leaf_groups(), around, max_leaves=5)


@st.composite
def situations(draw: st.DrawFn) -> tuple[Group, Structure, list[LeafState]]:
    """A tree with each task waiting, running, succeeded, or none of these."""
    group = draw(TREES)
    found, index = [], 0
    for part in leaves(group):
        kinds = draw(
            st.lists(
                st.sampled_from(["wait", "run", "done", "gated"]),
                min_size=len(part.requests),
                max_size=len(part.requests),
            )
        )
        of = {
            kind: tuple(index + place for place, each in enumerate(kinds) if each == kind)
            for kind in ("wait", "run")
        }
        found.append(LeafState(of["wait"], of["run"], kinds.count("done")))
        index += len(part.requests)
    return group, structure_of(group), found


def holds(group: Group, there: list[int]) -> bool:
    """Whether a tree is satisfied, by the words of the rule; takes its leaves off the list."""
    if group.is_leaf:
        return there.pop(0) >= group.least
    return sum([holds(child, there) for child in group.groups]) >= group.least


def applied(before: list[LeafState], step: Step) -> list[LeafState]:
    return [
        replace(
            state,
            pending=tuple(task for task in state.pending if task not in taken),
            running=tuple(sorted((*state.running, *taken))),
        )
        for state, taken in zip(before, step, strict=True)
    ]


@settings(max_examples=EXAMPLES)
@given(situations())
def test_satisfied_is_what_the_rule_says(
    situation: tuple[Group, Structure, list[LeafState]],
) -> None:
    group, structure, now = situation
    there = [state.there for state in now]
    assert satisfied(structure, there) == holds(group, there.copy())
    able = [state.there + len(state.pending) for state in now]
    assert ready(structure, now) == holds(group, able)


@settings(max_examples=EXAMPLES)
@given(situations())
def test_steps_lead_to_the_minimum_at_once_and_then_ever_further(
    situation: tuple[Group, Structure, list[LeafState]],
) -> None:
    _, structure, now = situation
    below = not satisfied(structure, [state.there for state in now])
    step = next_step(structure, now)
    if below:
        assert bool(step) == ready(structure, now)
    while step:
        taken = [task for tasks in step for task in tasks]
        assert taken
        assert all(
            tasks == state.pending[: len(tasks)] for tasks, state in zip(step, now, strict=True)
        )
        now = applied(now, step)
        assert satisfied(structure, [state.there for state in now])
        step = next_step(structure, now)


@settings(max_examples=EXAMPLES)
@given(situations())
def test_the_minimum_is_no_larger_than_it_must_be(
    situation: tuple[Group, Structure, list[LeafState]],
) -> None:
    _, structure, now = situation
    if satisfied(structure, [state.there for state in now]):
        return
    for leaf_number, taken in enumerate(next_step(structure, now)):
        if taken:
            fewer = list(next_step(structure, now))
            fewer[leaf_number] = taken[:-1]
            after = [state.there for state in applied(now, tuple(fewer))]
            assert not satisfied(structure, after)


@settings(max_examples=EXAMPLES)
@given(situations())
def test_everything_is_given_back_once_and_the_core_last(
    situation: tuple[Group, Structure, list[LeafState]],
) -> None:
    _, structure, now = situation
    steps = list(shed_steps(structure, now))
    running = sorted(task for state in now for task in state.running)
    assert sorted(task for step in steps for task in step.tasks) == running
    assert not any(step.core for step in steps[:-1])
    left = set(running)
    whole = satisfied(structure, [state.there for state in now])
    for step in steps:
        left -= set(step.tasks)
        there = [sum(task in left for task in s.running) + s.succeeded for s in now]
        assert satisfied(structure, there) == (whole and not step.core)


@settings(max_examples=EXAMPLES)
@given(situations())
def test_growing_undoes_the_last_shedding_of_a_single_group(
    situation: tuple[Group, Structure, list[LeafState]],
) -> None:
    group, structure, now = situation
    if structure.single is None or not satisfied(structure, [now[0].there]):
        return
    surplus = [step for step in shed_steps(structure, now) if not step.core]
    sizes = [now[0].there]
    for step in surplus:
        sizes.append(sizes[-1] - len(step.tasks))
    for larger, smaller in pairwise(
        sizes[1:] if leaves(group)[0].growth is Growth.DOUBLE else sizes
    ):
        back = LeafState(tuple(range(100)), tuple(range(smaller)))
        assert next_step(structure, [back]) == (tuple(range(larger - smaller)),)


@settings(max_examples=EXAMPLES)
@given(situations())
def test_what_is_stale_serves_nothing(
    situation: tuple[Group, Structure, list[LeafState]],
) -> None:
    _, structure, now = situation
    stale = set(stale_tasks(structure, now))
    there = [state.there for state in now]
    left = [state.there - len(stale & set(state.running)) for state in now]
    if any(state.succeeded for state in now):
        assert not stale
    elif satisfied(structure, there):
        assert satisfied(structure, left)
    else:
        assert stale == {task for state in now for task in state.running}


@pytest.mark.parametrize("tasks", [1, 2, 512])
def test_plain_gangs(tasks: int) -> None:
    group = leaf(tasks)
    assert offered(group, [0]) == (tuple(range(tasks)),)
    assert offered(group, [tasks]) == ()
    assert sheds(group, [tasks]) == [tuple(range(tasks))]
