"""Stories: what may happen to a cluster, one verb each, every choice made by dice.

The state machine, the long hunts and the hashes all tell stories; only who throws the dice differs.
"""

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from carrel_scheduler.core.errors import InvalidEvent
from carrel_scheduler.core.events import (
    Event,
    NodeRemoved,
    NodeSet,
    Outcome,
    QueueSet,
    TaskReleased,
    TaskStuck,
    UsageSeen,
    WorkloadRemoved,
)
from carrel_scheduler.core.work.jobs import JobInfo
from unit.core.dice import (
    EventT,
    beginning,
    in_groups,
    leaves_of,
    random_node,
    random_queue,
    random_settings,
    random_workload,
)
from unit.core.runs import Run, Violated, fingerprint

LENDING = 8
"""In one of so many stories work lets borrowers run for a while."""


class Story:
    """A run, and the verbs that move it."""

    def __init__(self, seed: int, *, checked: bool = True, grouped: bool = False) -> None:
        """``grouped``: nodes are in groups, and queues have quotas and limits there."""
        dice = random.Random(seed)
        self._in_groups = random.Random(seed) if grouped else None
        settings = random_settings(dice)
        if seed % LENDING == 0:
            settings = replace(settings, reclaim_delay_s=7.0)
        events = [self._grouped(event) for event in beginning(dice)]
        self.run = Run(*events, settings=settings, checked=checked)
        self.nodes = {event.name: event for event in events if isinstance(event, NodeSet)}
        self.queues = {event.name: event for event in events if isinstance(event, QueueSet)}
        self.leaves = leaves_of(list(self.queues.values()))
        self.count = 0

    # Verbs

    def submit(self, dice: random.Random) -> None:
        """Submit some workloads, alike or not."""
        seed, owner = dice.getrandbits(32), dice.choice(self.leaves)
        for _ in range(dice.choice((1, 1, 2, 4))):
            self.count += 1
            if dice.random() < 0.5:
                seed, owner = dice.getrandbits(32), dice.choice(self.leaves)
            uid = f"w{self.count}"
            queued = random_workload(random.Random(seed), uid, owner, self.run.now)
            self._tell(dice, self._grouped(queued))

    def wait(self, dice: random.Random) -> None:
        """Time passes; stops that are over end."""
        self.run.wait(dice.choice((0.0, 1.0, 3.0, 12.0)))

    def end(self, dice: random.Random) -> None:
        """A task ends somehow; when all have, the workload goes or asks again."""
        job = self._some(dice, self.run.state.holding)
        if job is None:
            return
        outcome = dice.choice((Outcome.SUCCEEDED,) * 3 + tuple(Outcome))
        indices = sorted(job.rows) if dice.random() < 0.6 else [dice.choice(sorted(job.rows))]
        for index in indices:
            self.run.ends.pop((job.uid, index), None)
            self._tell(dice, TaskReleased(job.uid, index, outcome, self.run.now))
        if not job.rows and not job.pending():
            again = outcome is not Outcome.SUCCEEDED and dice.random() < 0.5
            self._tell(dice, job.spec if again else WorkloadRemoved(job.uid))

    def leave(self, dice: random.Random) -> None:
        """A waiting workload is deleted."""
        job = self._some(dice, {u: j for u, j in self.run.state.jobs.by_uid.items() if not j.rows})
        if job is not None:
            self._tell(dice, WorkloadRemoved(job.uid))

    def stop(self, dice: random.Random) -> None:
        """Stop a running workload; it will ask again."""
        job = self._some(dice, self.run.state.holding)
        if job is not None:
            self.run.stop(job.uid)

    def stick(self, dice: random.Random) -> None:
        """A task that was told to stop does not end for a long while."""
        ends = sorted(self.run.ends)
        if ends:
            uid, index = dice.choice(ends)
            self.run.ends[uid, index] += 30.0
            self._tell(dice, TaskStuck(uid, index))

    def save(self, dice: random.Random) -> None:
        """A checkpoint."""
        job = self._some(dice, self.run.state.holding)
        if job is not None:
            self.run.save(job.uid)

    def open_gate(self, dice: random.Random) -> None:
        """A gated workload may start."""
        jobs = self.run.state.jobs.by_uid
        job = self._some(dice, {u: j for u, j in jobs.items() if j.spec.gated and not j.rows})
        if job is not None:
            self._tell(dice, replace(job.spec, gated=frozenset()))

    def change_node(self, dice: random.Random) -> None:
        """A node drains, comes back, or one of its devices breaks."""
        name = dice.choice(sorted(self.nodes))
        node = self.nodes[name]
        broken = {dice.randrange(node.devices)} if node.devices and dice.random() < 0.3 else set()
        changed = replace(
            node,
            schedulable=dice.random() < 0.8,
            draining=dice.random() < 0.2,
            broken_devices=frozenset(broken),
        )
        self._tell(dice, changed)

    def lose_node(self, dice: random.Random) -> None:
        """A node goes with all its tasks, and another of its name comes."""
        name, state = dice.choice(sorted(self.nodes)), self.run.state
        slot = state.nodes.slots[name]
        for uid, job in sorted(state.holding.items()):
            for index, row in sorted(job.rows.items()):
                if int(state.tasks.node[row]) == slot:
                    self.run.end_task(uid, index, Outcome.AGAIN)
        self._tell(dice, NodeRemoved(name))
        if dice.random() < 0.5:
            self.run.step()
        self.nodes[name] = self._grouped(random_node(dice, name))
        self._tell(dice, self.nodes[name])

    def change_queue(self, dice: random.Random) -> None:
        """New rules, or past use is seen."""
        name = dice.choice(sorted(self.queues))
        old = self.queues[name]
        if dice.random() < 0.3:
            part = dice.randrange(1_000_000)
            self._tell(dice, UsageSeen(name, (part, part, part)))
            return
        changed = random_queue(dice, name, old.parent, created_at=old.created_at)
        changed = self._grouped(changed)
        self.queues[name] = changed
        self._tell(dice, changed)

    # Inside

    def _grouped(self, event: EventT) -> EventT:
        """The event, where nodes are in groups with what the dice say of groups."""
        return event if self._in_groups is None else in_groups(self._in_groups, event)

    def _some(self, dice: random.Random, jobs: dict[str, JobInfo]) -> JobInfo | None:
        return jobs[dice.choice(sorted(jobs))] if jobs else None

    def _tell(self, dice: random.Random, event: Event) -> None:
        """Tell it, now and then twice: the second time is refused or changes nothing."""
        self.run.tell(event)
        twice = dice.random() < 0.2
        if self.run.checked and twice:
            before = fingerprint(self.run.state)
            with suppress(InvalidEvent):
                self.run.state.apply(event)
            if fingerprint(self.run.state) != before:
                raise Violated(f"twice changes something: {event}")
            self.run.check_state()


VERBS: dict[str, int] = {
    "submit": 8,
    "wait": 10,
    "end": 5,
    "leave": 1,
    "stop": 1,
    "stick": 1,
    "save": 1,
    "open_gate": 1,
    "change_node": 1,
    "lose_node": 1,
    "change_queue": 1,
}
"""Verb -> how often it is chosen."""


def tell(seed: int, steps: int, *, checked: bool = True, grouped: bool = False) -> Story:
    """A story of so many steps; after each of them there is a decision."""
    dice = random.Random(seed ^ 0x5EED)
    story = Story(seed, checked=checked, grouped=grouped)
    for _ in range(steps):
        advance(story, dice)
    return story


def advance(story: Story, dice: random.Random) -> str:
    """Make one step of a story; returns which it was."""
    (name,) = dice.choices(tuple(VERBS), tuple(VERBS.values()))
    verb: Callable[[random.Random], None] = getattr(story, name)
    verb(dice)
    if name != "wait":
        story.run.step()
    return name
