"""An endpoint's replicas in virtual time: made, replaced, rolled over, drained, given up."""

from dataclasses import dataclass, field, replace

import msgspec
import pytest

from carrel_scheduler.workloads.controllers.inference.plan import (
    Demand,
    Replica,
    Situation,
    State,
    Steps,
    pause_seconds,
    plan,
)
from carrel_schema.sections import InferenceSpec

WIDE = InferenceSpec(max_replicas=4, startup_seconds=60.0, drain_seconds=30.0)
QUIET = Demand()


@dataclass
class World:
    """Replicas that do what the plan says; tests say what happens to them."""

    spec: InferenceSpec = WIDE
    now: float = 1000.0
    replicas: list[Replica] = field(default_factory=list)
    demand: Demand = QUIET
    rest: bool = False
    room: int = 100
    steps: Steps = field(default_factory=lambda: Steps(wanted=-1))
    made: int = 0
    fewest_ready: int = 100

    def look(self) -> Steps:
        """One look, carried out at once."""
        known = self.steps
        self.steps = plan(
            Situation(
                spec=self.spec,
                replicas=tuple(self.replicas),
                rest=self.rest,
                wanted=known.wanted,
                demand=self.demand,
                low=known.low,
                failures=known.failures,
                counted=known.counted,
                not_before=known.not_before,
                most_failures=3,
            ),
            self.now,
        )
        gone = set(self.steps.remove)
        self.replicas = [self._after(one) for one in self.replicas if one.uid not in gone]
        for _ in range(self.steps.create):
            self.made += 1
            held = sum(one.state != "ended" for one in self.replicas)
            state: State = "starting" if held < self.room else "waiting"
            uid = f"r{self.made}"
            self.replicas.append(Replica(uid, self.made, self.spec.revision, state, self.now))
        self.fewest_ready = min(self.fewest_ready, self.count("ready"))
        return self.steps

    def _after(self, one: Replica) -> Replica:
        if one.uid in self.steps.drain:
            return replace(one, state="draining", since=self.now, in_use=True)
        return replace(one, state="ended") if one.uid in self.steps.end else one

    def set(self, state: State, *names: str, in_use: bool = False) -> None:
        """Something happens to some replicas, or to all that start."""
        for index, one in enumerate(self.replicas):
            if one.uid in names or (not names and one.state == "starting"):
                self.replicas[index] = replace(one, state=state, since=self.now, in_use=in_use)

    def count(self, state: State) -> int:
        return sum(one.state == state for one in self.replicas)

    def names(self, state: State) -> list[str]:
        return [one.uid for one in self.replicas if one.state == state]

    def settle(self) -> None:
        """Look until nothing more is asked for; what starts gets ready, what drains is done."""
        for _ in range(30):
            self.look()
            self.set("ready")
            for name in self.names("draining"):
                self.set("draining", name, in_use=False)
        self.look()

    def another_revision(self) -> None:
        self.spec = msgspec.structs.replace(self.spec, revision=self.spec.revision + 1)


def serving(count: int, **more: object) -> World:
    spec = InferenceSpec(min_replicas=count, max_replicas=count, startup_seconds=60.0)
    world = World(spec=spec, **more)  # type: ignore[arg-type]
    world.settle()
    world.fewest_ready = 100
    return world


def test_it_makes_what_is_wanted_and_then_nothing() -> None:
    world = World(spec=InferenceSpec(min_replicas=3, max_replicas=3))
    assert world.look().create == 3
    assert world.look().create == 0
    world.set("ready")
    assert (world.look().create, world.count("ready")) == (0, 3)


def test_what_ended_is_replaced_after_a_pause_that_grows() -> None:
    world = World(spec=InferenceSpec())
    pauses = []
    world.look()
    for _ in range(3):
        world.set("ended")
        steps = world.look()
        assert steps.create == 0
        assert steps.not_before is not None
        pauses.append(steps.not_before - world.now)
        assert steps.again_at == steps.not_before
        world.now = steps.not_before
        assert world.look().create == 1
    assert pauses == [1.0, 2.0, 4.0]
    world.set("ready")
    assert world.look().failures == 0


def test_the_record_of_the_last_end_stays_for_its_log_and_older_ones_go() -> None:
    world = World(spec=InferenceSpec())
    for _ in range(6):
        world.now += 100.0
        world.look()
        world.set("ended")
    world.look()
    assert world.names("ended") == ["r3"]


def test_too_many_failures_in_a_row_end_the_attempts() -> None:
    world = World(spec=InferenceSpec())
    for _ in range(10):
        world.look()
        world.set("ended")
        world.now += 100.0
    assert (world.steps.gave_up, world.made) == (True, 4)


def test_who_is_not_ready_in_time_is_stopped_and_counts_as_failed() -> None:
    world = World()
    world.look()
    world.now += 59.0
    assert world.look().again_at == 1060.0
    world.now = 1060.0
    steps = world.look()
    assert (steps.end, steps.late, steps.failures) == (["r1"], [1], 1)
    world.now += 1.0
    assert world.look().create == 1


def test_an_update_never_serves_with_less() -> None:
    world = serving(3)
    world.another_revision()
    world.settle()
    assert {one.revision for one in world.replicas} == {2}
    assert (world.count("ready"), world.fewest_ready) == (3, 3)


def test_an_update_brings_one_after_the_other() -> None:
    world = serving(3)
    world.another_revision()
    assert (world.look().create, world.look().create) == (1, 0)
    world.set("ready")
    steps = world.look()
    assert (len(steps.drain), steps.create) == (1, 1)


def test_an_update_that_fails_leaves_what_there_was() -> None:
    world = serving(2)
    world.another_revision()
    for _ in range(12):
        world.look()
        world.set("ended")
        world.now += 100.0
    assert (world.steps.gave_up, world.count("ready")) == (True, 2)


def test_an_update_without_room_takes_it_from_an_old_one_while_another_one_serves() -> None:
    world = serving(2, room=2)
    world.another_revision()
    world.look()
    assert world.names("waiting") == ["r3"]
    assert world.look().drain == []
    world.now += 11.0
    assert len(world.look().drain) == 1
    assert world.count("ready") == 1


def test_an_update_of_a_single_one_without_room_waits() -> None:
    world = serving(1, room=1)
    world.another_revision()
    world.look()
    world.now += 1000.0
    assert (world.look().drain, world.count("ready")) == ([], 1)


@pytest.mark.parametrize(
    ("heard", "in_use", "after"),
    [
        (True, False, 0.0),
        (True, True, 30.0),
        (False, False, 30.0),
    ],
)
def test_a_drained_one_is_stopped_when_gateways_are_done_with_it_or_its_time_is_up(
    heard: bool, in_use: bool, after: float
) -> None:
    old = Replica("r1", 1, 1, "draining", 1000.0, in_use)
    asked = Situation(spec=InferenceSpec(), replicas=[old], rest=True, heard=heard)
    before = plan(asked, 1000.0 + after - 0.1) if after else None
    assert before is None or (before.remove, before.again_at) == ([], 1030.0)
    assert plan(asked, 1000.0 + after).remove == ["r1"]


def test_at_rest_those_that_serve_are_drained_and_the_others_go() -> None:
    world = serving(2)
    world.replicas.append(Replica("r9", 9, 1, "waiting", world.now))
    world.rest = True
    steps = world.look()
    assert (sorted(steps.drain), steps.remove) == (["r1", "r2"], ["r9"])
    world.settle()
    assert world.replicas == []


def test_scaling_down_drains_the_youngest() -> None:
    world = World(spec=InferenceSpec(max_replicas=3, in_flight_per_replica=1, idle_seconds=10.0))
    world.demand = Demand(3)
    world.settle()
    assert world.names("ready") == ["r1", "r2", "r3"]
    world.demand = Demand(1, last_request_at=world.now)
    world.look()
    world.now += 11.0
    assert world.look().drain == ["r3", "r2"]


def test_pauses_are_bounded() -> None:
    assert [pause_seconds(number) for number in (1, 2, 7, 1000)] == [1.0, 2.0, 60.0, 60.0]
