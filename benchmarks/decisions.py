"""Times of single decisions of the core, against peers and goals.

One sub-command for each kind of decision. Data is
made from seeds, so every run decides the same. Times are wall clock; beside them stands the
processor's time, which is what a decision costs when other work shares the machine.
"""

import argparse
from collections.abc import Callable

from benchmarks.decision_cases import cycle, hard_no, improve, loaded, others, reclaim, speculate
from benchmarks.report import Figure, show

CASES: dict[str, Callable[[argparse.Namespace], list[Figure]]] = {
    "reclaim": lambda args: reclaim.run(args.nodes, args.repeats),
    "hard-no": lambda args: hard_no.run(args.nodes, args.repeats),
    "cycle": lambda args: cycle.run(args.nodes, args.pods, args.repeats, args.warm_up, args.rounds),
    "improve": lambda args: improve.run(args.nodes, args.pods, args.repeats, args.warm_up),
    "consolidate": lambda args: others.consolidate(args.nodes, args.repeats),
    "elastic": lambda args: others.elastic(args.nodes, args.repeats),
    "topology": lambda args: others.topology(args.nodes, args.repeats),
    "speculate": lambda args: speculate.run(args.nodes, args.pods, args.repeats),
    "load": lambda args: loaded.run(args.nodes, args.pods, args.repeats),
}
TITLES = {
    "reclaim": "A gang of N/2 whole nodes takes back N nodes of borrowed GPUs, one decision",
    "hard-no": "The same gang where no legal set of victims suffices",
    "cycle": "Full cycles in the steady state, 100 changes between two",
    "improve": "A tenth of the running jobs would move to a better type of GPU, full cycles",
    "consolidate": "Work moves together so that gangs find room, one decision",
    "elastic": "Elastic trainings grow into idle room, one decision",
    "topology": "A gang that has to stay together, one decision",
    "speculate": "One what-if on the state of a large cluster",
    "load": "The state of a large cluster from a full listing, in a fresh process",
}


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(prog="python -m benchmarks.decisions", description=__doc__)
    commands = top.add_subparsers(dest="case", required=True)
    sizes = {"reclaim": [100, 500, 1000, 10_000], "hard-no": [100, 1000]}
    repeats = {"cycle": 300, "hard-no": 100, "speculate": 200, "load": 3, "improve": 100}
    large = ("cycle", "speculate", "load")
    for name, title in TITLES.items():
        one = commands.add_parser(name, help=title)
        if name in sizes:
            one.add_argument("--nodes", type=int, nargs="+", default=sizes[name])
        else:
            one.add_argument("--nodes", type=int, default=4000 if name in large else 1000)
        if name in (*large, "improve"):
            tasks = 140_000 if name in large else 35_000
            one.add_argument("--pods", type=int, default=tasks, help="tasks that run")
        if name in ("cycle", "improve"):
            one.add_argument("--warm-up", type=int, default=30, help="cycles that do not count")
        if name == "cycle":
            one.add_argument("--rounds", type=int, default=5, help="equal runs; the fastest counts")
        one.add_argument("--repeats", type=int, default=repeats.get(name, 15))
        one.add_argument("--json", action="store_true", help="end with a line for machines")
    return top


def main() -> None:
    """Run one case and print its figures."""
    args = parser().parse_args()
    show(TITLES[args.case], CASES[args.case](args), as_json=args.json)


if __name__ == "__main__":
    main()
