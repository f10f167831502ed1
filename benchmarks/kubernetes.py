"""Measurements on a real API server with Node objects; see the modules they stand in.

``python -m benchmarks.kubernetes bind [--nodes 500] [--jobs 4000] [--rounds 1] [--json]``
``python -m benchmarks.kubernetes bind [--share 0.5 | --gangs 3000x3]``
``python -m benchmarks.kubernetes relist|churn ...``: as ``benchmarks.kubernetes_watch`` says
"""

import argparse
import sys

from benchmarks import kubernetes_bind, kubernetes_watch
from benchmarks.kubernetes_bind_load import Load
from benchmarks.report import show


def bind() -> None:
    """Compare the scheduler with kube-scheduler."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("bind",))
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--jobs", type=int, default=4000)
    parser.add_argument("--share", default="", help="each asks for that part of a GPU")
    parser.add_argument("--gangs", type=Load.gangs, help="so many gangs of so many: 3000x3")
    parser.add_argument("--rounds", type=int, default=1, help="of both, each first in turn")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    load = given.gangs or Load(pods=given.jobs, share=given.share)
    figures = kubernetes_bind.bind(given.nodes, load, given.rounds)
    show(f"Binding, {given.nodes} nodes, {load.pods} pods", figures, as_json=given.json)


if __name__ == "__main__":
    if sys.argv[1:2] in (["relist"], ["churn"]):
        kubernetes_watch.main()
    else:
        bind()
