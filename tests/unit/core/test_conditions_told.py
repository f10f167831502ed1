"""Which condition leaves no node is told with its values, the first few of many."""

import pytest

from carrel_scheduler.core.decide import decide
from carrel_scheduler.core.events import TopologySet
from carrel_scheduler.core.gangs import Group, Level
from carrel_scheduler.core.requests import HOST, NodeConstraint
from carrel_scheduler.core.speculation import never
from unit.core.situations import NOW, asking, node, queue, state_of, training


@pytest.mark.parametrize(
    ("names", "told"),
    [
        ("a", "to be one of `a`"),
        ("abc", "to be one of `a`, `b`, `c`"),
        ("abcd", "to be one of `a`, `b`, `c` and 1 more"),
        ("edcba", "to be one of `a`, `b`, `c` and 2 more"),
    ],
)
def test_names(names: str, told: str) -> None:
    found = never(state_of(node("n", 1), queue("q")), training("x", "q", nodes=list(names)))
    assert found is not None
    assert found.detail == told


def test_a_level_of_hosts_may_be_said_or_left_out() -> None:
    """Both say the same: what fits in no rack is refused, what fits in one lies in one."""
    for levels in (("zone", "rack"), ("zone", "rack", HOST)):
        nodes = [node(f"n{n}", 2, labels=(("zone", "z"), ("rack", f"r{n // 2}"))) for n in range(4)]
        state = state_of(TopologySet("t", levels), *nodes, queue("q"))
        four = Group(requests=(asking(1),) * 4, level=Level(required="rack"))
        state.apply(training("x", "q", gang=four))
        places = {one.node for one in decide(state, NOW).bindings}
        assert places in ({"n0", "n1"}, {"n2", "n3"})
        for level, tasks, fits in (("rack", 5, False), (HOST, 3, False), ("zone", 8, True)):
            gang = Group(requests=(asking(1),) * tasks, level=Level(required=level))
            assert (never(state, training("y", "q", gang=gang)) is None) == fits


@pytest.mark.parametrize(
    ("values", "more"), [("abc", ""), ("abcd", " or 1 more"), ("edabc", " or 2 more")]
)
def test_labels(values: str, more: str) -> None:
    where = NodeConstraint(labels=(("gpu", frozenset(values)),))
    state = state_of(node("n", 1, labels=(("gpu", "z"),)), queue("q"))
    found = never(state, training("x", "q", request=asking(1, where=where)))
    assert found is not None
    assert found.detail.endswith(f"`c`{more}")
