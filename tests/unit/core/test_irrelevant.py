"""What has nothing to do with anybody changes nothing: the same plans, the same reasons.

Into a story told by dice come, before anything else, closed nodes without room or a queue that
holds and asks for nothing. They take slots and numbers of their own. (Work, even on hold, is no
such thing: which work is usual is learned from all that was submitted.)
"""

import random
from collections.abc import Iterator

import pytest

from carrel_scheduler.core.events import Event, NodeSet, QueueSet
from carrel_scheduler.core.resources import OPEN, ResourceVector
from unit.core.dice import beginning, leaves_of, random_settings, random_workload
from unit.core.runs import Run, text_of

IRRELEVANT: dict[str, list[Event]] = {
    "node": [NodeSet("n00", 0, 0, 0, schedulable=False), NodeSet("z", 0, 0, 0, draining=True)],
    "queue": [QueueSet("aa", ResourceVector(0, 0, 0), OPEN, weight=(0, 0, 0), created_at=99.0)],
}


def story(seed: int, added: list[Event]) -> Iterator[tuple[str, dict[str, object]]]:
    dice = random.Random(seed)
    settings = random_settings(dice)
    events = beginning(dice)
    owners = leaves_of([event for event in events if isinstance(event, QueueSet)])
    first = [event for event in events if not isinstance(event, NodeSet | QueueSet)]
    rest = [event for event in events if isinstance(event, NodeSet | QueueSet)]
    run = Run(*first, *added, *rest, settings=settings, checked=False)
    for number in range(14):
        run.submit(random_workload(dice, f"w{number:02}", dice.choice(owners), run.now))
        if dice.random() < 0.3 and run.running():
            run.finish(dice.choice(run.running()))
        plan = run.wait(dice.choice((0.0, 1.0, 4.0)))
        yield text_of(plan), dict(plan.reasons)


@pytest.mark.parametrize("kind", IRRELEVANT)
@pytest.mark.parametrize("seed", range(8))
def test_it_changes_nothing(seed: int, kind: str) -> None:
    pairs = zip(story(seed, []), story(seed, IRRELEVANT[kind]), strict=True)
    for step, ((plan, reasons), (other, others)) in enumerate(pairs):
        assert other == plan, f"step {step}"
        assert others == reasons, f"step {step}"
