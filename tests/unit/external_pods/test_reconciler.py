"""External pods in the loop: queued, bound, evicted, taken back; gangs whole or not at all."""

import random

import pytest

from carrel_scheduler.core.events import Outcome, Preemptibility
from carrel_scheduler.engines.contract import LATE_SECONDS
from carrel_scheduler.engines.kubernetes.external_pods.messages import (
    EvictionRefused,
    NodeDeleted,
    NodeSeen,
    UnmanagedPodSeen,
)
from carrel_scheduler.engines.kubernetes.pods.labels import GangRole, Grouping
from unit.external_pods.world import World, grouping, node, pod


@pytest.fixture
def world() -> World:
    world = World()
    world.project("a", 6)
    world.project("b", 6)
    return world


def gang(uid: str, least: int, project: str = "a", *, controlled: bool = True) -> Grouping:
    return grouping(uid, project, roles=(GangRole("", least),), controlled=controlled)


def test_a_bare_pod_is_bound_and_its_end_frees_its_device(world: World) -> None:
    for number in range(13):
        world.add(f"p{number}", grouping(f"g{number}"))
    world.settle()
    assert len(world.bound()) == 12  # all devices
    world.see("uid-p0", outcome=Outcome.SUCCEEDED)
    world.settle()
    assert "p12" in world.bound()
    assert [row.to_phase for row in world.rows].count("ended") == 1


def test_a_gang_starts_when_it_is_whole_and_not_before(world: World) -> None:
    whole = gang("g", 3)
    world.add("g0", whole, gpus=4)
    world.add("g1", whole, gpus=4)
    world.settle()
    assert world.bound() == {}
    world.add("g2", whole, gpus=4)
    world.settle()
    assert sorted(world.bound().values()) == ["n0", "n1", "n2"]


def test_the_pods_of_a_gang_are_told_which_of_them_are_missing(world: World) -> None:
    whole = gang("g", 3)
    world.add("g0", whole, gpus=4)
    world.settle()
    world.now += 9
    world.settle()
    assert world.told == {}  # a controller makes them one after another
    world.now += 1
    world.settle()
    started = "It is one of Pod `g`, which starts as a whole. It waits for"
    rest = "which are not there yet or may not start."
    assert world.told == {"g0": f"{started} 2 of 3 pods, {rest}"}
    world.add("g1", whole, gpus=4)
    world.settle()
    world.now += 30
    world.settle()
    assert world.told == dict.fromkeys(("g0", "g1"), f"{started} 1 of 3 pods, {rest}")
    world.add("g2", whole, gpus=4)
    world.told.clear()
    world.now += 60
    world.settle()
    assert len(world.bound()) == 3
    assert world.told == {}


def test_missing_pods_are_told_by_role_where_there_are_several(world: World) -> None:
    roles = (GangRole("launcher", 1), GangRole("worker", 2))
    whole = grouping("m", roles=roles, controlled=True, kind="MPIJob")
    world.add("w0", whole, role="worker")
    world.settle()
    world.now += 10
    world.settle()
    assert world.told["w0"].startswith(
        "It is one of MPIJob `m`, which starts as a whole. "
        "It waits for 1 of 1 pods of role `launcher` and 1 of 2 pods of role `worker`"
    )


def test_what_is_borrowed_is_taken_back_and_its_successor_keeps_its_place(world: World) -> None:
    for number in range(12):
        world.add(f"p{number}", grouping("job", controlled=True))
    world.settle()
    for number in range(6):
        world.add(f"q{number}", grouping(f"q{number}", "b"))
    world.settle()
    ending = [uid for uid, real in world.pods.items() if real.pod.ending]
    assert len(ending) == 6
    for uid in ending:
        world.delete(uid)
    world.settle()
    assert sum(1 for name in world.bound() if name.startswith("q")) == 6
    before = set(world.reconciler.current.index.workloads)
    world.add("again", grouping("job", controlled=True))
    world.settle()
    assert (
        set(world.reconciler.current.index.workloads) == before
    )  # it took the task of one that gave way
    assert "again" not in world.bound()


def test_a_successor_that_comes_early_takes_the_slot_of_the_one_that_gives_way(
    world: World,
) -> None:
    for number in range(12):
        world.add(f"p{number}", grouping("job", controlled=True))
    world.settle()
    world.add("q", grouping("q", "b"))
    world.settle()
    (ending,) = [uid for uid, real in world.pods.items() if real.pod.ending]
    world.add("early", grouping("job", controlled=True))
    world.settle()
    world.delete(ending)
    world.settle()
    assert "q" in world.bound()
    assert len(world.reconciler.current.index.workloads) == 13
    world.delete("uid-q")
    world.settle()
    assert "early" in world.bound()


def test_a_gang_of_which_one_can_not_be_bound_gives_back_all_and_comes_again(world: World) -> None:
    whole = gang("g", 3)
    for number in range(3):
        world.add(f"g{number}", whole, gpus=4)
    world.turn()
    world.carry_out()
    world.carry_out(lambda: "final")
    world.carry_out()
    world.settle()
    bound = [real for real in world.pods.values() if real.pod.node]
    assert all(real.pod.ending for real in bound)
    for real in bound:
        world.delete(real.pod.ref.uid)
    world.settle()
    assert world.bound() == {}
    for real in bound:
        world.add(f"{real.pod.ref.name}-again", whole, gpus=4)
    world.now += 31.0
    world.settle()
    assert len(world.bound()) == 3


def test_a_place_is_kept_while_its_binding_is_on_its_way(world: World) -> None:
    world.add("p", grouping("p"), gpus=4)
    world.turn()
    world.add("q", grouping("q"), gpus=4)
    world.turn()
    assert {one.node for one in world.binds} == {"n0", "n1"}


def test_a_refused_binding_is_tried_again(world: World) -> None:
    world.add("p", grouping("p"))
    world.turn()
    world.carry_out(lambda: "again")
    world.settle()
    assert world.bound() == {}
    world.now += 1.0
    world.settle()
    assert "p" in world.bound()


def test_strangers_count_as_used(world: World) -> None:
    for name in ("n0", "n1"):
        world.news.append(UnmanagedPodSeen(pod(f"s-{name}", 3, nodeName=name)))
    world.add("p", grouping("p"), gpus=2)
    world.add("q", grouping("q"), gpus=2)
    world.settle()
    assert set(world.bound().values()) == {"n2"}


def test_a_pod_without_a_project_waits_and_is_told_so(world: World) -> None:
    world.add("p", grouping("p", "nowhere"))
    world.settle()
    assert world.bound() == {}
    assert "no project `nowhere`" in world.told["p"]
    world.project("nowhere", 1)
    world.settle()
    assert "p" in world.bound()


def test_the_same_reason_with_other_amounts_is_told_again_after_a_while_only(world: World) -> None:
    world.add("p", grouping("p"))
    world.turn()
    (workload,) = world.reconciler.current.index.workloads.values()
    one = workload.tasks[0].pod
    assert one is not None
    assert world.reconciler.current.report_pending(one, "WaitsForRoom", "1 GPU is missing")
    assert not world.reconciler.current.report_pending(one, "WaitsForRoom", "2 GPUs are missing")
    assert world.reconciler.current.report_pending(one, "OverLimit", "the limit is reached")
    world.reconciler.current.now += 31.0
    assert world.reconciler.current.report_pending(one, "OverLimit", "the limit is still reached")


def test_pods_of_a_node_that_left_are_waited_for_elsewhere(world: World) -> None:
    job = grouping("job", controlled=True)
    world.add("p", job)
    world.settle()
    (there,) = world.bound().values()
    world.news.append(NodeDeleted(there))
    world.turn()
    world.delete("uid-p")
    world.add("p-again", job)
    world.settle()
    assert world.bound()["p-again"] != there


def test_a_node_that_does_not_answer_gives_its_ending_pods_up(world: World) -> None:
    world.add("p", grouping("job", controlled=True), gpus=4)
    world.settle()
    (there,) = world.bound().values()
    world.news.append(NodeSeen(node(there, ready=False)))
    world.see("uid-p", ending=True)
    world.settle()
    assert world.state.project_use("a").gpu_milli == 0


def test_a_gang_that_runs_in_part_gives_up_after_its_grace(world: World) -> None:
    whole = gang("g", 2, controlled=False)
    world.add("g0", whole)
    world.add("g1", whole)
    world.settle()
    world.delete("uid-g0")
    world.settle()
    assert not world.pods["uid-g1"].pod.ending
    world.now += 6.0
    world.settle()
    assert world.pods["uid-g1"].pod.ending


def test_nobody_makes_a_bare_pod_again_that_is_gone_after_a_restart(world: World) -> None:
    whole = gang("g", 2, controlled=False)
    world.add("g0", whole)
    world.add("g1", whole)
    world.settle()
    world.delete("uid-g0")
    world.restart()
    world.project("a", 6)
    world.settle()
    assert not world.pods["uid-g1"].pod.ending
    world.now += 6.0  # the grace of a gang in part, and no time for a pod that does not come
    world.settle()
    assert world.pods["uid-g1"].pod.ending


def test_a_restart_finds_everything_as_it_is(world: World) -> None:
    whole = gang("g", 2)
    world.add("g0", whole, gpus=2)
    world.add("g1", whole, gpus=2)
    world.add("p", grouping("p", preemptible=Preemptibility.NO), gpus=2)
    world.settle()
    before = world.bound()
    world.restart()
    world.project("a", 6)
    world.project("b", 6)
    world.settle()
    assert world.bound() == before
    assert world.state.project_use("a").gpu_milli == 6000


@pytest.mark.parametrize("seed", range(12))
def test_whatever_happens_no_device_is_given_twice(seed: int) -> None:
    chance = random.Random(seed)
    world = World()
    world.project("a", 5)
    world.project("b", 7)
    for step in range(120):
        _happen(world, chance, step)
        world.now += chance.choice((0.0, 0.1, 3.0))
    for uid in [uid for uid, real in world.pods.items() if real.pod.ending]:
        world.delete(uid)
    for _ in range(8):
        world.now += 70.0
        world.settle()
        for uid in [uid for uid, real in world.pods.items() if real.pod.ending]:
            world.delete(uid)
    _check_rest(world)


def _happen(world: World, chance: random.Random, step: int) -> None:
    what = chance.random()
    project = chance.choice("ab")
    if what < 0.2:
        one = grouping(f"j{step}", project, controlled=chance.random() < 0.5)
        world.add(f"p{step}", one, chance.choice((1, 1, 2, 4)))
    elif what < 0.3:
        size = chance.choice((2, 3))
        whole = gang(f"k{step}", size, project, controlled=chance.random() < 0.5)
        for pod in range(size - (chance.random() < 0.3)):
            world.add(f"p{step}-{pod}", whole, chance.choice((1, 2)))
    elif what < 0.4 and world.pods:
        world.delete(chance.choice(sorted(world.pods)))
    elif what < 0.5 and world.pods:
        uid = chance.choice(sorted(world.pods))
        if world.pods[uid].alive:
            world.see(uid, outcome=chance.choice((Outcome.SUCCEEDED, Outcome.FAILED)))
    elif what < 0.55 and world.pods:
        world.see(chance.choice(sorted(world.pods)), ending=True)
    elif what < 0.58:
        world.restart()
        world.project("a", 5)
        world.project("b", 7)
    elif what < 0.8:
        world.carry_out(lambda: chance.choice(("", "", "", "again", "final")))
    else:
        world.turn()


def _check_rest(world: World) -> None:
    """What runs is counted once; no gang runs in part."""
    alive = [real for real in world.pods.values() if real.alive]
    held = sum(world.state.project_use(name).gpu_milli for name in "ab")
    assert held == 1000 * sum(len(real.pod.devices or ()) for real in alive)
    assert not world.state.stale  # gangs of which one succeeded are allowed to go on


def test_nobody_waits_for_ever_for_a_pod_that_does_not_go(world: World) -> None:
    for number in range(12):
        world.add(f"a{number}", grouping(f"uid-a{number}", "a"))
    world.settle()
    world.add("b0", grouping("uid-b0", "b"))
    world.settle()
    (first,) = [real for real in world.pods.values() if real.pod.ending]
    world.now += first.pod.grace_seconds + LATE_SECONDS - 1
    world.settle()
    assert [real for real in world.pods.values() if real.pod.ending] == [first]
    world.now += 2
    world.settle()
    (second,) = [r for r in world.pods.values() if r.pod.ending and r is not first]
    world.delete(second.pod.ref.uid)
    world.settle()
    assert world.bound()["b0"] == second.pod.node
    world.delete(first.pod.ref.uid)
    world.settle()
    assert len(world.bound()) == 11


def test_history_says_what_is_borrowed_and_what_comes_to_be(world: World) -> None:
    for number in range(8):
        world.add(f"p{number}", grouping(f"g{number}"))
    world.settle()
    world.now += 2.0
    world.settle()
    running = {row.workload_uid: row for row in world.rows if row.to_phase == "running"}
    assert [row.borrowed for row in running.values()].count(True) == 2  # six are guaranteed
    borrowed = {uid for uid, row in running.items() if row.borrowed}
    (first, *_) = sorted(uid for uid in running if uid not in borrowed)
    world.see(first, outcome=Outcome.SUCCEEDED)
    world.settle()
    world.now += 2.0
    world.settle()
    last = {row.workload_uid: row for row in world.rows}
    assert sum(row.borrowed for row in last.values()) == 1
    assert last[first].to_phase == "ended"
    assert not last[first].borrowed


def test_a_pod_that_is_not_evicted_is_told_and_its_room_not_counted_on(world: World) -> None:
    for number in range(12):
        world.add(f"p{number}", grouping("job", controlled=True))
    world.settle()
    world.add("q", grouping("q", "b"))
    world.turn()
    (order,) = world.evictions
    world.evictions.clear()
    world.news.append(EvictionRefused(order.pod, "a disruption budget protects it"))
    world.turn()
    (note,) = [one for one in world.event_reports if one.token == "EvictionRefused"]
    assert note.pod == order.pod
    assert "disruption budget protects it. That is tried again." in note.message
    world.settle()
    assert any(real.pod.ending for real in world.pods.values())  # another one instead
