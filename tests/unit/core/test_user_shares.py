"""Fair sharing between the users of a queue: who holds least goes first, at every turn."""

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from carrel_scheduler.core import speculation
from carrel_scheduler.core.decide import decide
from carrel_scheduler.core.events import QueueSet, WorkloadQueued, WorkloadRemoved
from carrel_scheduler.core.gangs import Group
from carrel_scheduler.core.messages.render import help_text, sentence
from carrel_scheduler.core.settings import Settings
from unit.core.dice import random_workload
from unit.core.runs import Run
from unit.core.situations import node, queue, training
from unit.core.stories import Story

USERS = ("ada", "bea", "carl", "dora", "emil")


def shared(name: str = "vision", gpus: float = 16, **more: Any) -> QueueSet:
    return queue(name, gpus, fair_users=True, **more)


def of(user: str, number: int, gpus: float = 1, **more: Any) -> WorkloadQueued:
    """Work of a user; a larger number is younger."""
    at = {"created_at": float(number)} | more
    return training(f"{user}{number}", "vision", gpus, user=user, **at)


def by_user(run: Run) -> Counter[str]:
    """Running workloads of each user."""
    return Counter(run.state.job(uid).spec.user for uid in run.running())


def test_starts_of_one_pass_are_divided_between_users() -> None:
    """Four old workloads of ada and four younger of bea: two of each start at once."""
    jobs = [of("ada", number) for number in range(4)] + [of("bea", n) for n in range(4, 8)]
    fair, plain = Run(node("n", 4), shared()), Run(node("n", 4), queue("vision", 16))
    for run in (fair, plain):
        run.submit(*jobs)
        run.step()
    assert by_user(fair) == {"ada": 2, "bea": 2}
    assert fair.running() == ["ada0", "ada1", "bea4", "bea5"]
    assert by_user(plain) == {"ada": 4}


def test_the_larger_and_the_older_come_after_who_holds_less() -> None:
    run = Run(node("n", 8), shared())
    run.submit(of("ada", 0, 4), of("ada", 1, 4), *(of("bea", n, 2) for n in (2, 3, 4)))
    run.step()
    assert run.running() == ["ada0", "bea2", "bea3"]
    run.finish("bea2")
    run.step()
    assert run.running() == ["ada0", "bea3", "bea4"]


def test_priority_comes_before_shares_and_cpu_after_gpus() -> None:
    run = Run(node("n", 1, cpu=64), shared())
    run.submit(of("ada", 0, 0, cpu=40), of("bea", 1, 0, cpu=4))
    run.step()
    run.submit(of("ada", 2), of("bea", 3))
    run.step()
    assert "bea3" in run.running(), "both hold no GPU, and bea less CPU"
    run.finish("bea3")
    run.submit(of("bea", 4), of("ada", 5, priority=60))
    run.step()
    assert "ada5" in run.running()


def test_gangs_and_tasks_that_end_count_for_their_user() -> None:
    """What is terminating is no longer held; reserved places are."""
    run = Run(node("n", 4), shared())
    run.submit(of("ada", 0, 1, tasks=3), of("bea", 1))
    run.step()
    assert by_user(run) == {"ada": 1, "bea": 1}
    run.submit(of("ada", 2), of("bea", 3))
    run.finish("bea1")
    run.step()
    assert "bea3" in run.running()
    assert "ada2" not in run.running()


def test_growth_comes_after_the_rest_of_the_queue_whoever_holds_less() -> None:
    wide = replace(of("ada", 0), gang=Group(requests=(of("ada", 0).request,) * 4, min_tasks=1))
    run = Run(node("n", 4), shared())
    run.submit(wide, *(of("bea", n) for n in range(1, 4)))
    run.step()
    assert by_user(run) == {"ada": 1, "bea": 3}


def test_queues_are_shared_each_by_itself() -> None:
    run = Run(node("n", 4), shared(), queue("speech", 16))
    run.submit(*(replace(of("ada", n), project="speech") for n in range(2)))
    run.step()
    run.submit(*(of("ada", n) for n in (4, 5)), *(of("bea", n) for n in (6, 7)))
    run.step()
    assert {"ada4", "bea6"} <= set(run.running()), "what ada holds elsewhere does not count"


def test_a_rule_that_changes_counts_for_what_waits() -> None:
    run = Run(node("n", 2), queue("vision", 16))
    run.submit(*(of("ada", n) for n in range(6)), *(of("bea", n) for n in range(6, 9)))
    run.step()
    assert by_user(run) == {"ada": 2}
    run.tell(shared())
    run.finish("ada0")
    run.step()
    assert by_user(run) == {"ada": 1, "bea": 1}
    run.tell(queue("vision", 16))
    run.finish("bea6")
    run.step()
    assert by_user(run) == {"ada": 2}


def test_a_preview_of_the_rule_leaves_no_trace() -> None:
    run = Run(node("n", 2), queue("vision", 16))
    run.submit(*(of("ada", n) for n in range(4)), *(of("bea", n) for n in range(4, 7)))
    before = decide(run.state, run.now)
    starts, evicted = speculation.impact(run.state, shared(), run.now)
    assert (starts, evicted) == (("bea4",), ())
    run.check_state()
    after = decide(run.state, run.now)
    assert before.bindings == after.bindings


def test_who_holds_more_is_told_so() -> None:
    run = Run(node("n", 3), shared())
    run.submit(of("ada", 0), of("ada", 1), of("bea", 2))
    run.step()
    run.submit(of("ada", 3), *(of("bea", n) for n in (4, 5)), of("carl", 6))
    plan = run.step()
    reason = plan.reasons["ada3"]
    assert (reason.passed_by, reason.user_gpus, reason.ahead) == (2, 2000, 2)
    text = sentence(reason, "vision")
    assert text.endswith(
        "Its user holds 2 GPUs of `vision`; later work of users who hold less goes first."
    )
    assert "2 workloads of `vision` are served before it" in help_text(reason, "vision")
    assert plan.reasons["bea4"].passed_by == 1
    assert plan.reasons["carl6"].passed_by == 0
    assert "goes first" not in sentence(plan.reasons["carl6"], "vision")
    assert list(plan.queue) == ["carl6", "bea4", "ada3", "bea5"]


def test_large_work_of_who_holds_least_starves_and_of_others_does_not() -> None:
    """It gets places, and nobody of the queue starts before it; work of a heavy user waits."""
    settings = Settings(reservation_delay_s=50.0)
    small = [of("bea", n) for n in range(8)]
    run = Run(node("n", 8), shared(), settings=settings)
    run.submit(*small)
    run.step()
    run.submit(of("ada", 10, 6), *(of("bea", n) for n in range(11, 30)))
    run.wait(100.0)
    assert "ada10" in run.state.reserved
    older = Run(node("n", 8), shared(), settings=settings)
    older.submit(*small)
    older.step()
    older.submit(of("bea", 8), of("bea", 9))
    older.wait(1.0)
    older.submit(of("ada", 10, 6))
    older.finish("bea0")
    older.finish("bea1")
    older.wait(100.0)
    assert "ada10" in older.state.reserved
    assert len(older.running()) == 6, "older work of who holds more waits for it, too"
    heavy = Run(node("n", 8), shared(), settings=settings)
    heavy.submit(of("ada", 0, 4), *(of("bea", n) for n in range(1, 5)))
    heavy.step()
    heavy.submit(of("ada", 5, 4), *(of("carl", n) for n in range(6, 20)))
    heavy.wait(100.0)
    assert "ada5" not in heavy.state.reserved
    heavy.finish("bea1")
    heavy.step()
    assert by_user(heavy)["carl"] == 1


@pytest.mark.parametrize("seed", range(3))
def test_gpu_time_of_users_converges(seed: int) -> None:
    """Five users who always want more, at full load with short work: shares end up equal.

    They submit as often and as much as they like; some of them ten times as much as others.
    """
    dice = random.Random(seed)
    run, number = Run(node("a", 8), node("b", 8), shared(), checked=False), 0
    used: Counter[str] = Counter()
    for _ in range(200):
        waiting = Counter(
            job.spec.user for row in run.state.waiting for job in row.members.values()
        )
        for place, user in enumerate(USERS):
            for _ in range(dice.choice((1, 2, 3, 4 * place))):
                if waiting[user] < 30:
                    number += 1
                    run.submit(of(user, number, dice.choice((1, 1, 2))))
        run.step()
        for uid in run.running():
            job = run.state.job(uid)
            used[job.spec.user] += job.shape.first[0]
            if dice.random() < 0.4:
                run.finish(uid)
    assert max(used.values()) / min(used[user] for user in USERS) <= 1.2, used


def test_stories_with_users_keep_every_invariant() -> None:
    """The stories of all rules, with users who share queues, and rules that come and go."""
    for seed in range(12):
        story, dice = Story(seed), random.Random(seed)
        for rule in story.queues.values():
            story.run.tell(replace(rule, fair_users=dice.random() < 0.7))
        for turn in range(12):
            for count in range(3):
                uid, owner = f"w{turn}-{count}", dice.choice(story.leaves)
                queued = random_workload(dice, uid, owner, story.run.now)
                story.run.submit(replace(queued, user=dice.choice(USERS)))
            story.run.wait(dice.choice((0.0, 2.0, 11.0)))
            story.end(dice)
            name = dice.choice(sorted(story.queues))
            story.run.tell(replace(story.queues[name], fair_users=dice.random() < 0.5))


def test_equal_input_gives_an_equal_plan() -> None:
    """Whatever has happened before: rows that were renewed are served as new ones."""
    jobs = [of(user, number) for number in range(6) for user in USERS]
    one, other = Run(node("n", 8), shared()), Run(node("n", 8), queue("vision", 16))
    one.submit(*jobs)
    other.submit(of("zoe", 0), *reversed(jobs))
    other.tell(WorkloadRemoved("zoe0"), shared())
    assert decide(one.state, 100.0).bindings == decide(other.state, 100.0).bindings
