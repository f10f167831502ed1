"""Guaranteed quota against static quota on a trace of real jobs.

Projects are the trace's virtual clusters, with quotas in proportion to their GPU-hours; jobs come
when they came and take as long as they took. With static quota each project has its own GPUs. With
guaranteed quota idle GPUs are lent, and taken back by stopping what borrows: what that work had
not saved is lost and done again. Whoever takes back waits a while before: most jobs are short and
end by themselves meanwhile. The core decides, in nodes of 8 GPUs.

With ``--kinds`` the nodes have so many types of GPUs, and every job runs as long on each: the wait
of jobs that name all types in order of preference is compared with that of jobs which name one.
How much shorter it would be if all GPUs were alike is told as well: more no order can bring.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from benchmarks import static_quota
from benchmarks.philly import TraceJob, quotas, read_jobs
from benchmarks.report import Figure, show
from benchmarks.simulation import Simulation
from carrel_scheduler.core.events import NodeSet, Preemptibility, QueueSet, WorkloadQueued
from carrel_scheduler.core.gangs import Group
from carrel_scheduler.core.requests import ANYWHERE, NodeConstraint, Request
from carrel_scheduler.core.resources import UNLIMITED, ResourceVector
from carrel_scheduler.core.settings import Settings
from carrel_scheduler.core.state import State
from carrel_scheduler.engines import gpu_models

GPUS_A_NODE = 8
HOUR_S = 3600.0
GRACE_S = 30.0
SHORTER = 100 / 3
"""The goal for the mean wait when jobs name all types of GPUs: so many per cent shorter."""
GOALS = {768: (0.998, 0.0005, 0.15)}
"""Goals by guaranteed GPUs: least use while jobs wait, most lost, longest mean wait."""


def simulate(
    jobs: Sequence[TraceJob],
    gpus: int,
    checkpoint_s: float | None,
    batch_s: float,
    reclaim_delay_s: float,
    kinds: int = 1,
    choices: int = 1,
) -> Simulation:
    """The whole trace under the core.

    With several ``kinds`` of GPUs each job names ``choices`` of them, the first by its number.
    """
    models = [f"kind{number}" for number in range(kinds)]
    state = State(Settings(reclaim_delay_s=reclaim_delay_s))
    for number in range(gpus // GPUS_A_NODE):
        labels = ((gpu_models.LABEL, models[number % kinds]),)
        name = f"node-{number:04}"
        state.apply(NodeSet(name, GPUS_A_NODE, 64_000, 1_048_576, labels=labels))
    for name, milli in quotas(jobs, gpus).items():
        state.apply(QueueSet(name, ResourceVector(milli, UNLIMITED, UNLIMITED)))
    run = Simulation(state, grace_seconds=GRACE_S, batch_seconds=batch_s, settles=False)
    arrivals = iter(jobs)

    def arrive(job: TraceJob) -> None:
        run.submit(
            workload(job, named(job, models, choices)),
            duration=job.duration,
            checkpoint_every=checkpoint_s,
        )
        expect(next(arrivals, None))

    def expect(job: TraceJob | None) -> None:
        if job is not None:
            run.at(job.arrival, lambda: arrive(job))

    expect(next(arrivals, None))
    run.run_to_end()
    return run


def named(job: TraceJob, models: Sequence[str], choices: int) -> NodeConstraint:
    """The types of GPUs that a job names, as work of the service is placed."""
    if len(models) == 1:
        return ANYWHERE
    first = int(job.uid.rpartition("-")[2]) % len(models)
    order = [*models[first:], *models[:first]][:choices]
    preferred = gpu_models.in_order(order, models)
    return NodeConstraint(labels=preferred[-1:], preferred=preferred[:-1])


def workload(job: TraceJob, where: NodeConstraint = ANYWHERE) -> WorkloadQueued:
    """The workload of a job: one task up to 8 GPUs, else a gang of whole nodes and a rest."""
    whole, rest = divmod(job.gpus, GPUS_A_NODE)
    sizes = [GPUS_A_NODE] * whole + [rest] * bool(rest)
    requests = tuple(Request(gpus=size, cpu_milli=1000 * size, where=where) for size in sizes)
    plain = len(set(sizes)) == 1
    return WorkloadQueued(
        job.uid,
        job.uid,
        job.cluster,
        "user",
        50,
        Preemptibility.YES,
        requests[0],
        len(requests),
        created_at=job.arrival,
        gang=None if plain else Group(requests=requests),
    )


def figures(
    jobs: Sequence[TraceJob],
    gpus: int,
    checkpoint_s: float | None,
    batch_s: float,
    reclaim_delay_s: float,
) -> list[Figure]:
    """Figures of both kinds of quota side by side."""
    static = static_quota.run(jobs, quotas(jobs, gpus))
    begin = time.perf_counter()
    run = simulate(jobs, gpus, checkpoint_s, batch_s, reclaim_delay_s)
    took = time.perf_counter() - begin
    use, lost, wait = GOALS.get(gpus, (0.0, 1.0, float("inf")))
    judged = gpus in GOALS and checkpoint_s is not None
    mean_wait = sum(work.waited for work in run.ended) / len(run.ended) / HOUR_S
    evictions = sum(work.evictions for work in run.ended)
    measures, label = run.measures, f"{gpus} GPUs"

    def judge(name: str, value: float, unit: str, goal: str, met: bool) -> Figure:
        return Figure(f"{label}: {name}", value, unit, goal if judged else "-", met or not judged)

    in_use, part = measures.in_use_while_asked, measures.lost_part
    return [
        Figure(f"{label}: in use while jobs wait, static", 100 * static.in_use, "%", "-"),
        Figure(f"{label}: all idle counted, static", 100 * static.held, "%", "-"),
        judge("in use while jobs wait", 100 * in_use, "%", f">= {100 * use:g}", in_use >= use),
        Figure(f"{label}: all idle counted", 100 * measures.held_while_waiting, "%", "-"),
        Figure(f"{label}: mean wait, static", static.mean_wait_s / HOUR_S, "h", "-"),
        judge("mean wait", mean_wait, "h", f"<= {wait:g}", mean_wait <= wait),
        judge("GPU time lost", 100 * part, "%", f"<= {100 * lost:g}", part <= lost),
        Figure(f"{label}: evictions", evictions, "", "-"),
        Figure(
            f"{label}: jobs done", len(run.ended), "", f"= {len(jobs)}", len(run.ended) == len(jobs)
        ),
        Figure(f"{label}: decisions", run.decisions, "", "-"),
        Figure(f"{label}: time of the run", took, "s", "-"),
    ]


def of_kinds(
    jobs: Sequence[TraceJob],
    gpus: int,
    checkpoint_s: float | None,
    batch_s: float,
    reclaim_delay_s: float,
    kinds: int,
) -> list[Figure]:
    """Mean waits: of jobs that name one type of GPU, of those that name all, and without types."""
    waits = []
    for types, choices in ((kinds, 1), (kinds, kinds), (1, 1)):
        run = simulate(jobs, gpus, checkpoint_s, batch_s, reclaim_delay_s, types, choices)
        waits.append(sum(work.waited for work in run.ended) / len(run.ended) / HOUR_S)
    one, ordered, alike = waits
    shorter, at_most = (100 * (1 - wait / one) if one else 0.0 for wait in (ordered, alike))
    label, goal = f"{gpus} GPUs of {kinds} types", f">= {SHORTER:g}"
    return [
        Figure(f"{label}: mean wait, one type named", one, "h", "-"),
        Figure(f"{label}: mean wait, all named in order", ordered, "h", "-"),
        Figure(f"{label}: shorter by", shorter, "%", goal, shorter >= SHORTER),
        Figure(f"{label}: shorter if all GPUs were alike", at_most, "%", "-"),
    ]


def main() -> None:
    """Run the study and print its figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quota", description=__doc__)
    parser.add_argument("--trace", type=Path, required=True, help="CSV of jobs")
    parser.add_argument("--gpus", type=int, nargs="+", default=[512, 768, 1024])
    parser.add_argument("--checkpoint-minutes", type=float, default=30.0, help="0: never")
    parser.add_argument("--batch-seconds", type=float, default=1.0, help="decided upon together")
    parser.add_argument(
        "--reclaim-delay-minutes", type=float, default=7.5, help="before lent GPUs are taken back"
    )
    parser.add_argument("--kinds", type=int, default=1, help="types of GPUs that nodes have")
    parser.add_argument("--jobs", type=int, default=None, help="only so many, for a quick look")
    parser.add_argument("--json", action="store_true", help="end with a line for machines")
    args = parser.parse_args()
    jobs = read_jobs(args.trace)[: args.jobs]
    saves, delay = args.checkpoint_minutes * 60 or None, args.reclaim_delay_minutes * 60
    study: Callable[..., list[Figure]]
    if args.kinds > 1:
        title, study = (
            "Types of GPUs in order against one type",
            partial(of_kinds, kinds=args.kinds),
        )
    else:
        title, study = "Guaranteed quota against static quota", figures
    rows = [
        one for gpus in args.gpus for one in study(jobs, gpus, saves, args.batch_seconds, delay)
    ]
    show(title, rows, as_json=args.json)


if __name__ == "__main__":
    main()
