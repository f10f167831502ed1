"""Fairness: twenty projects of unequal quota that all want more get what they are entitled to.

Jobs come at one and a half times what a project is guaranteed, run, and end. Half of the projects
come two hours later and take back what the others borrowed meanwhile. Then, for some hours, the
cluster is saturated and shares are measured against entitlements. A project is entitled to as much
of its quota as its jobs can fill: where three of eight GPUs are left and only jobs of eight wait,
it could not use the three if they were its own, and nobody else may be taken below quota for the
other five. Finish-time fairness is a project's mean time from submission to end over the same jobs'
mean time on GPUs of its own, as many as it is guaranteed.
"""

import argparse
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from benchmarks import static_quota
from benchmarks.philly import TraceJob
from benchmarks.quota import GPUS_A_NODE, GRACE_S, HOUR_S
from benchmarks.report import Figure, show
from benchmarks.simulation import Simulation
from carrel_scheduler.core.events import NodeSet, Preemptibility, QueueSet, WorkloadQueued
from carrel_scheduler.core.plan import Plan
from carrel_scheduler.core.reasons import Token
from carrel_scheduler.core.requests import Request
from carrel_scheduler.core.resources import MILLI, UNLIMITED, ResourceVector
from carrel_scheduler.core.state import State

PROJECTS = 20
QUOTAS = (8, 8, 8, 8, 8, 8, 12, 12, 12, 12, 12, 12, 16, 16, 16, 16, 16, 16, 20, 20)
LOAD = 1.5
BACKLOG = 2
"""The work that each project brings at once, in multiples of its quota."""
MEAN_RUN_S = 1800.0
LATE_S = 2 * HOUR_S
SETTLED_S = 3 * HOUR_S
SAMPLE_S = 60.0
FIXED_PART = 0.1
JAIN_GOAL, FINISH_GOAL = 0.99, 1.2


@dataclass(slots=True)
class Watch:
    """Observations of a run: samples of use, and violations of quota."""

    used: Counter[str] = field(default_factory=Counter)
    entitled: Counter[str] = field(default_factory=Counter)
    samples: int = 0
    in_quota_victims: int = 0
    fixed_beyond: int = 0

    def plan(self, state: State, plan: Plan) -> None:
        """A project loses work to others only while it holds more than its quota.

        So what it loses without the largest of it is less than what it holds beyond, what it is
        given in the same plan included. Work that is moved stays its own.
        """
        given: Counter[int] = Counter()
        for uid in [b.uid for b in plan.bindings] + [n.uid for n in plan.nominations if n.places]:
            job = state.job(uid)
            given[job.queue] += job.shape.total[0]
        lost: dict[int, list[int]] = {}
        for eviction in plan.evictions:
            if eviction.reason.token is Token.RECLAIMED and not eviction.moved:
                job = state.job(eviction.uid)
                rows = eviction.indices or job.running()
                gpus = sum(job.shape.requests[index].gpus for index in rows)
                lost.setdefault(job.queue, []).append(gpus * MILLI)
        for slot, sizes in lost.items():
            held = int(state.queues.used[slot, 0] + state.queues.reserved[slot, 0]) + given[slot]
            beyond = held - state.queues.rule(slot).quota.gpu_milli
            self.in_quota_victims += sum(sizes) - max(sizes) >= beyond

    def state(self, state: State) -> None:
        """Check that non-preemptible work stays within quota."""
        for slot in state.queues.slots.values():
            fixed = int(state.queues.fixed[slot, 0])
            self.fixed_beyond += fixed > state.queues.rule(slot).quota.gpu_milli

    def sample(self, state: State) -> None:
        """Note what each project holds."""
        self.samples += 1
        waiting: dict[int, list[int]] = {}
        for row in state.waiting:
            sizes = [row.shape.total[0] // MILLI] * len(row.members)
            waiting.setdefault(row.queue, []).extend(sizes)
        for name, slot in state.queues.slots.items():
            used, quota = int(state.queues.used[slot, 0]), state.queues.rule(slot).quota.gpu_milli
            room = max(0, quota - used) // MILLI
            self.used[name] += used
            self.entitled[name] += min(used, quota) + fill(room, waiting.get(slot, ())) * MILLI


def fill(room: int, sizes: Sequence[int]) -> int:
    """The most of so many GPUs that jobs of these sizes can fill."""
    within, reached = (1 << room + 1) - 1, 1
    for size in sizes:
        reached |= reached << size & within
    return reached.bit_length() - 1


def jobs_of(hours: float, seed: int) -> list[TraceJob]:
    """The jobs, in the order of arrival."""
    rng = random.Random(seed)
    sizes = (1, 1, 1, 2, 2, 4, 8)
    mean_gpus = sum(sizes) / len(sizes)
    found: list[TraceJob] = []
    for project, quota in enumerate(QUOTAS):
        at = LATE_S * (project % 2)
        backlog = int(BACKLOG * quota / mean_gpus)
        while True:
            at += 0 if backlog > 0 else rng.expovariate(LOAD * quota / mean_gpus / MEAN_RUN_S)
            backlog -= 1
            if at > hours * HOUR_S:
                break
            uid, run_s = f"p{project:02}-{len(found):05}", rng.expovariate(1 / MEAN_RUN_S) + 60
            found.append(TraceJob(uid, f"project-{project:02}", at, run_s, rng.choice(sizes)))
    return sorted(found, key=lambda job: (job.arrival, job.uid))


def simulate(jobs: Sequence[TraceJob], hours: float, seed: int) -> tuple[Simulation, Watch]:
    """Run all of them, to the last one's end."""
    state, watch, rng = State(), Watch(), random.Random(seed + 1)
    for number in range(sum(QUOTAS) // GPUS_A_NODE):
        state.apply(NodeSet(f"node-{number:03}", GPUS_A_NODE, 64_000, 1_048_576))
    for project, quota in enumerate(QUOTAS):
        amounts = ResourceVector(quota * MILLI, UNLIMITED, UNLIMITED)
        state.apply(QueueSet(f"project-{project:02}", amounts))
    run = Simulation(
        state, grace_seconds=GRACE_S, settles=False, before_plan=watch.plan, after_plan=watch.state
    )
    for job in jobs:
        queued = _workload(job, fixed=rng.random() < FIXED_PART)
        submit = partial(run.submit, queued, duration=job.duration, checkpoint_every=300.0)
        run.at(job.arrival, submit)
    at = SETTLED_S
    while at < hours * HOUR_S:
        run.at(at, partial(watch.sample, state))
        at += SAMPLE_S
    run.run_to_end()
    return run, watch


def _workload(job: TraceJob, *, fixed: bool) -> WorkloadQueued:
    kind = Preemptibility.NO if fixed else Preemptibility.YES
    request = Request(gpus=job.gpus, cpu_milli=1000 * job.gpus)
    return WorkloadQueued(
        job.uid, job.uid, job.cluster, "user", 50, kind, request, created_at=job.arrival
    )


def jain(values: Sequence[float]) -> float:
    """Jain's index: 1 when all are equal, 1 / n when one has everything."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 0.0


def finish_times(jobs: Sequence[TraceJob], run: Simulation) -> dict[str, float]:
    """The mean time to the end of each project, over that on GPUs of its own."""
    took: dict[str, list[float]] = {}
    for work in run.ended:
        if work.finished is not None:
            took.setdefault(work.queued.project, []).append(work.finished - work.submitted)
    found = {}
    for project, quota in enumerate(QUOTAS):
        name = f"project-{project:02}"
        mine = [job for job in jobs if job.cluster == name]
        alone = static_quota.run(mine, {name: quota * MILLI}).mean_wait_s
        alone += sum(job.duration for job in mine) / len(mine)
        found[name] = sum(took[name]) / len(took[name]) / alone
    return found


def figures(hours: float, seed: int) -> list[Figure]:
    """The whole study."""
    jobs = jobs_of(hours, seed)
    run, watch = simulate(jobs, hours, seed)
    names = [f"project-{p:02}" for p in range(PROJECTS)]
    shares = [watch.used[name] / watch.entitled[name] for name in names]
    of_quota = [
        watch.used[name] / (watch.samples * quota * MILLI)
        for name, quota in zip(names, QUOTAS, strict=True)
    ]
    index, finish = jain(shares), finish_times(jobs, run)
    worst = max(finish.values())
    violations = watch.in_quota_victims + watch.fixed_beyond
    use = sum(watch.used.values()) / (watch.samples * sum(QUOTAS) * MILLI)
    return [
        Figure(
            "Jain index of share over entitlement",
            index,
            "",
            f">= {JAIN_GOAL}",
            index >= JAIN_GOAL,
        ),
        Figure("least share over entitlement", min(shares), "x", "-"),
        Figure("largest share over entitlement", max(shares), "x", "-"),
        Figure("Jain index of share over quota", jain(of_quota), "", "-"),
        Figure("worst finish-time fairness", worst, "x", f"<= {FINISH_GOAL}", worst <= FINISH_GOAL),
        Figure("mean finish-time fairness", sum(finish.values()) / PROJECTS, "x", "-"),
        Figure("quota violations", violations, "", "= 0", violations == 0),
        Figure("GPUs in use while saturated", 100 * use, "%", "-"),
        Figure("jobs", len(jobs), "", "-"),
        Figure("evictions", sum(work.evictions for work in run.ended), "", "-"),
        Figure("decisions", run.decisions, "", "-"),
    ]


def main() -> None:
    """Run the study and print its figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fairness", description=__doc__)
    parser.add_argument("--hours", type=float, default=9.0, help="of arrivals; more than 3")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="end with a line for machines")
    args = parser.parse_args()
    rows = figures(args.hours, args.seed)
    show("Twenty projects of unequal quota, saturated", rows, as_json=args.json)


if __name__ == "__main__":
    main()
