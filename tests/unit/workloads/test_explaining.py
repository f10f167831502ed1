"""Slices of reasons: bounded, in turn, whoever has none first, and none of them twice."""

from dataclasses import dataclass, field

from carrel_scheduler.core.reasons import Reason, ReasonClass, Token
from carrel_scheduler.core.state import State
from carrel_scheduler.engines.external import NoExternalPods
from carrel_scheduler.workloads.reconcile import plan_execution
from carrel_scheduler.workloads.reconcile.plan_execution import Explaining
from carrel_scheduler.workloads.state.cache import WorkloadCache
from carrel_scheduler.workloads.state.pass_changes import PassChanges
from carrel_schema.objects import Meta, Workload, WorkloadSpec


@dataclass
class Said:
    """A plan's words without a plan."""

    queue: tuple[str, ...] = ()
    reasons: dict[str, Reason] = field(default_factory=dict)


class Table:
    """Waiters without a core, and what each slice wrote."""

    def __init__(self, count: int) -> None:
        self.cache = WorkloadCache()
        self.explaining = Explaining(lambda: 0.0, lambda: self.said)
        self.said = Said()
        self.uids = [f"u{number}" for number in range(count)]
        for uid in self.uids:
            self.cache.add(Workload(meta=Meta(name=uid, uid=uid), spec=WorkloadSpec()))

    def plan(self, short: int) -> None:
        reason = Reason(ReasonClass.NOT_NOW, Token.WAITS_FOR_ROOM, resource="gpu", short=short)
        self.said = Said(tuple(self.uids), dict.fromkeys(self.uids, reason))
        self.cache.queue = lambda: self.said.queue
        self.explaining.decided(len(self.uids))

    def slice(self) -> list[str]:
        state = State()
        changes = PassChanges(0.0, 1, 1, 0, self.cache, state, NoExternalPods())
        self.explaining.slice(changes)
        return list(changes.dirty)


def test_a_short_queue_hears_at_once_and_nothing_is_written_twice() -> None:
    table = Table(3)
    table.plan(1)
    assert table.slice() == table.uids
    assert not table.explaining.pending
    table.plan(1)
    assert table.slice() == []
    places = [table.cache.get(uid) for uid in table.uids]
    assert [entry and entry.workload.status.queue_position for entry in places] == [1, 2, 3]


def test_places_move_though_reasons_stay() -> None:
    table = Table(3)
    table.plan(1)
    table.slice()
    table.uids = table.uids[1:]
    table.plan(1)
    assert table.slice() == []
    assert table.cache.latest_positions == {"u1": 1, "u2": 2}


def test_a_long_queue_hears_in_turn_though_every_plan_changes_all_reasons() -> None:
    count = 3 * plan_execution.WRITTEN_AT_ONCE
    table = Table(count)
    told: list[str] = []
    for number in range(3):
        table.plan(number + 1)
        written = table.slice()
        assert len(written) == plan_execution.WRITTEN_AT_ONCE
        told += written
    assert sorted(told) == sorted(table.uids)


def test_a_slice_looks_at_a_bounded_number() -> None:
    table = Table(2 * plan_execution.SEEN_AT_ONCE + 1)
    table.plan(1)
    while table.explaining.pending:
        table.slice()
    table.plan(1)
    for pending in (True, True, False):
        assert table.slice() == []
        assert table.explaining.pending is pending


def test_who_has_heard_nothing_goes_before_those_whose_reason_changed() -> None:
    table = Table(5 * plan_execution.WRITTEN_AT_ONCE)
    newest = table.uids[-1]
    table.explaining.queued([newest])
    assert not table.explaining.pending  # no plan has said anything about it
    table.plan(1)
    assert table.slice()[0] == newest
