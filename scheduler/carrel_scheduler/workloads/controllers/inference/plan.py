"""Scaling and roll-out of an endpoint's replicas: pure functions of time.

Scaling: up at once; down when less has been enough for ``idle_seconds``, to as many as were needed
at most in that time. The last replica goes only when no request has come for as long.

A replica that goes is drained first: gateways send it nothing new, what it has it finishes, then it
is stopped. Another specification is rolled out one replica at a time, the new one first; where
there is no capacity for one more, an old one is stopped for it as long as another one serves.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from carrel_scheduler.backoff import Pauses
from carrel_schema.sections import InferenceSpec


@dataclass(frozen=True, slots=True)
class Low:
    """A time ``since`` which fewer replicas were enough; ``need`` is the most of that time."""

    since: float
    need: int


@dataclass(frozen=True, slots=True)
class Demand:
    """The demand for replicas. ``last_request_at`` is epoch seconds."""

    in_flight: int = 0
    last_request_at: float | None = None


@dataclass(frozen=True, slots=True)
class Scale:
    """The wanted number of replicas; ``again_at`` is when it may change without an event."""

    wanted: int
    low: Low | None = None
    again_at: float | None = None


def needed(spec: InferenceSpec, in_flight: int) -> int:
    """Replicas for so many requests at once, within the endpoint's bounds."""
    least, most = spec.min_replicas, spec.max_replicas
    return min(max(math.ceil(in_flight / spec.in_flight_per_replica), least), most)


def scaled(spec: InferenceSpec, wanted: int, demand: Demand, low: Low | None, now: float) -> Scale:
    """The number of replicas from now on.

    Args:
        spec: bounds and times.
        wanted: the number so far; below 0 at the beginning, when one has to prove itself.
        demand: requests now.
        low: of the last answer.
        now: epoch seconds.
    """
    if wanted < 0:
        return Scale(max(spec.min_replicas, 1, needed(spec, demand.in_flight)))
    present = min(max(wanted, spec.min_replicas), spec.max_replicas)
    need = needed(spec, demand.in_flight)
    if need >= present:
        return Scale(need)
    low = Low(now, need) if low is None else Low(low.since, max(low.need, need))
    idle_at = low.since + spec.idle_seconds
    quiet_at = (demand.last_request_at or low.since) + spec.idle_seconds
    if now < idle_at:
        return Scale(present, low, idle_at)
    if low.need > 0:
        return Scale(low.need, Low(now, need) if need < low.need else None)
    if now >= quiet_at:
        return Scale(0)
    return Scale(min(present, 1), low, quiet_at)


State = Literal["waiting", "starting", "ready", "draining", "ended", "leaving"]

PAUSES: Final = Pauses(1.0, 60.0)
NO_ROOM_SECONDS: Final = 10.0
_ALIVE: Final = ("waiting", "starting", "ready")


@dataclass(frozen=True, slots=True)
class Replica:
    """The present state of one replica.

    Attributes:
        state: ``leaving`` is terminating; ``ended`` has its record left and nothing else.
        since: when it began to wait, to start or to drain; epoch seconds.
        in_use: whether a gateway may send it requests or waits for answers of it.
    """

    uid: str
    number: int
    revision: int
    state: State
    since: float = 0.0
    in_use: bool = False


@dataclass(frozen=True, slots=True)
class Situation:
    """The inputs of the decision.

    Attributes:
        rest: nothing is to run (suspended, or given up).
        wanted: the number of replicas so far; below 0 at the beginning.
        heard: whether any gateway reports requests.
        failures: replicas that failed since one was ready last.
        counted: replicas up to this number were counted for failures.
        not_before: no new replica before then.
        most_failures: more of them end the attempts.
    """

    spec: InferenceSpec
    replicas: Sequence[Replica]
    rest: bool = False
    wanted: int = -1
    demand: Demand = field(default_factory=Demand)
    low: Low | None = None
    heard: bool = True
    failures: int = 0
    counted: int = 0
    not_before: float | None = None
    most_failures: int = 6


@dataclass(slots=True)
class Steps:
    """The next steps, and what to remember for the next pass.

    Attributes:
        create: how many replicas of the present revision to make.
        drain: uids that get no more requests.
        end: uids to stop, their records kept for who wants to read why.
        remove: uids to stop and remove.
        late: numbers of those that were not ready in time.
        gave_up: too many replicas failed one after the other.
    """

    wanted: int = 0
    low: Low | None = None
    failures: int = 0
    counted: int = 0
    not_before: float | None = None
    create: int = 0
    drain: list[str] = field(default_factory=list)
    end: list[str] = field(default_factory=list)
    remove: list[str] = field(default_factory=list)
    late: list[int] = field(default_factory=list)
    gave_up: bool = False
    again_at: float | None = None

    def by(self, when: float) -> None:
        """Set the next pass to ``when`` at the latest."""
        self.again_at = when if self.again_at is None else min(self.again_at, when)


def pause_seconds(failures: int) -> float:
    """The pause before another replica after failures: 1 s, doubled each time, at most a minute."""
    return PAUSES.after(max(failures - 1, 0))


def plan(now_is: Situation, now: float) -> Steps:
    """The next steps of an endpoint."""
    steps = Steps(failures=now_is.failures, counted=now_is.counted, not_before=now_is.not_before)
    _count_failures(now_is, steps, now)
    _end_drained(now_is, steps, now)
    if now_is.rest:
        steps.wanted, steps.counted = -1, max((one.number for one in now_is.replicas), default=0)
        _let_go(steps, [one for one in now_is.replicas if one.state in _ALIVE])
        return steps
    scale = scaled(now_is.spec, now_is.wanted, now_is.demand, now_is.low, now)
    steps.wanted, steps.low = scale.wanted, scale.low
    if scale.again_at is not None:
        steps.by(scale.again_at)
    late = set(steps.end)
    alive = [one for one in now_is.replicas if one.state in _ALIVE and one.uid not in late]
    ours = [one for one in alive if one.revision == now_is.spec.revision]
    others = [one for one in alive if one.revision != now_is.spec.revision]
    if others:
        _roll(now_is, steps, ours, others, now)
    else:
        _adjust(now_is, steps, ours, now)
    return steps


def _count_failures(now_is: Situation, steps: Steps, now: float) -> None:
    """Ends that nobody asked for, and starts that take too long; a ready one ends the count."""
    ended = [one for one in now_is.replicas if one.state == "ended"]
    fresh = [one for one in ended if one.number > now_is.counted]
    for one in now_is.replicas:
        if one.state != "starting":
            continue
        due = one.since + now_is.spec.startup_seconds
        if now >= due:
            steps.end.append(one.uid)
            steps.late.append(one.number)
        else:
            steps.by(due)
    newest = max(now_is.replicas, key=lambda one: one.number, default=None)
    if newest is not None and newest.state == "ready":
        steps.failures, steps.not_before = 0, None
    failed = [one.number for one in fresh] + steps.late
    if failed:
        steps.failures += len(failed)
        steps.counted = max(failed)
        steps.not_before = now + pause_seconds(steps.failures)
    # The newest record stays: its log says why it ended.
    steps.remove += [one.uid for one in sorted(ended, key=lambda one: one.number)[:-1]]


def _end_drained(now_is: Situation, steps: Steps, now: float) -> None:
    for one in now_is.replicas:
        if one.state != "draining":
            continue
        due = one.since + now_is.spec.drain_seconds
        if now >= due or (now_is.heard and not one.in_use):
            steps.remove.append(one.uid)
        else:
            steps.by(due)


def _adjust(now_is: Situation, steps: Steps, ours: Sequence[Replica], now: float) -> None:
    """Add the steps that lead to the wanted number of replicas."""
    if len(ours) < steps.wanted:
        _make(now_is, steps, steps.wanted - len(ours), now)
    else:
        _let_go(steps, _least_useful(ours)[: len(ours) - steps.wanted])


def _roll(
    now_is: Situation,
    steps: Steps,
    ours: Sequence[Replica],
    others: Sequence[Replica],
    now: float,
) -> None:
    """Add a replica of the new revision, and end an old one for each new one that is ready."""
    ready = sum(one.state == "ready" for one in ours)
    keep = max(0, steps.wanted - ready)
    coming = [one for one in ours if one.state != "ready"]
    serving = [one for one in others if one.state == "ready"]
    for one in coming:
        if one.state == "waiting" and len(serving) + ready > 1:
            if now >= one.since + NO_ROOM_SECONDS:
                keep = min(keep, len(others) - 1)
            else:
                steps.by(one.since + NO_ROOM_SECONDS)
    _let_go(steps, _least_useful(others)[: max(0, len(others) - keep)])
    if len(ours) < steps.wanted and not coming:
        _make(now_is, steps, 1, now)


def _make(now_is: Situation, steps: Steps, number: int, now: float) -> None:
    if steps.failures > now_is.most_failures:
        steps.gave_up = True
    elif steps.not_before is not None and now < steps.not_before:
        steps.by(steps.not_before)
    else:
        steps.create = number


def _let_go(steps: Steps, replicas: Sequence[Replica]) -> None:
    """End replicas: ready ones are drained, the others stop at once."""
    for one in replicas:
        (steps.drain if one.state == "ready" else steps.remove).append(one.uid)


def _least_useful(replicas: Sequence[Replica]) -> list[Replica]:
    """The order in which replicas are ended: pending, starting, then the youngest ready ones."""
    return sorted(replicas, key=lambda one: (_ALIVE.index(one.state), -one.number))
