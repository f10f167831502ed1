"""Makes ``docs/performance.md``: runs the benchmarks of the core and writes down what they said.

Each command's figures are kept in ``benchmarks/performance.json``, so one command can be run again
without the others: ``--only``. Between the two marks of the page stands what is made here; the
words around it are written by hand. ``--write`` only makes the page from the kept figures.
"""

import argparse
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.growth_plot import Lines, draw

ROOT = Path(__file__).parent.parent
KEPT = ROOT / "benchmarks" / "performance.json"
PAGE = ROOT / "docs" / "performance.md"
PLOT = ROOT / "docs" / "images" / "growth.svg"
BEGIN, END = "<!-- figures: made by benchmarks/performance_page.py -->", "<!-- end of figures -->"
LONGEST_S = 7200
Row = dict[str, Any]
Rows = dict[str, list[Row]]


def commands(traces: Path) -> dict[str, list[str]]:
    """Name -> module and arguments; traces by folder."""
    openb = traces / "openb"
    pods = sorted(str(path) for path in openb.glob("openb_pod_list_*.csv"))
    nodes = str(openb / "openb_node_list_gpu_node.csv")
    decisions = "benchmarks.decisions"
    sizes = [(100, 3500), (1000, 35_000), (4000, 140_000), (10_000, 350_000)]
    cycles = {
        f"cycle-{n}": [decisions, "cycle", "--nodes", str(n), "--pods", str(tasks)]
        for n, tasks in sizes
    }
    loads = {
        f"load-{n}": [decisions, "load", "--nodes", str(n), "--pods", str(tasks)]
        for n, tasks in sizes
    }
    return {
        "packing": ["benchmarks.packing", "--nodes", nodes, "--pods", *pods],
        "departures": [
            "benchmarks.packing", "--nodes", nodes, "--pods", *pods, "--departures", "0.95"
        ],
        "quota": ["benchmarks.quota", "--trace", str(traces / "philly" / "philly.csv")],
        "fairness": ["benchmarks.fairness"],
        "reclaim": [decisions, "reclaim", "--nodes", "100", "500", "1000", "10000"],
        "hard-no": [decisions, "hard-no", "--nodes", "100", "1000", "10000"],
        **cycles,
        "improve": [decisions, "improve"],
        "consolidate": [decisions, "consolidate"],
        "elastic": [decisions, "elastic"],
        "topology": [decisions, "topology"],
        "speculate": [decisions, "speculate"],
        **loads,
        "oracle": ["benchmarks.oracle"],
    }  # fmt: skip


def run(command: Sequence[str]) -> list[Row]:
    """The figures of one command; what it prints besides goes on to the terminal."""
    done = subprocess.run(
        [sys.executable, "-m", *command, "--json"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        check=True,
        text=True,
        timeout=LONGEST_S,
    )
    print(done.stdout)
    rows: list[Row] = json.loads(done.stdout.strip().splitlines()[-1])
    return rows


def growth(kept: Rows) -> Lines:
    """Times by number of nodes, of figures whose label says how many nodes there were."""
    wanted = {
        r"([\d,]+) nodes, tight budgets: processor time": "reclaim, tight budgets",
        r"([\d,]+) nodes, loose budgets: processor time": "reclaim, loose budgets",
        r"([\d,]+) nodes, nodes one short: processor time": "no: nodes one short",
        r"([\d,]+) nodes, budgets one short: processor time": "no: budgets one short",
        r"([\d,]+) nodes, only in whole nodes: processor time": "no: by search",
        r"([\d,]+) nodes, [\d,]+ tasks: p99 processor time": "cycle, p99",
        r"([\d,]+) nodes, [\d,]+ tasks: load, processor time": "load",
    }
    lines: dict[str, dict[int, float]] = {}
    for row in (row for rows in kept.values() for row in rows):
        for pattern, name in wanted.items():
            found = re.fullmatch(pattern, row["figure"])
            if found:
                factor = 1000 if row["unit"] == "s" else 1
                nodes = int(found[1].replace(",", ""))
                lines.setdefault(name, {})[nodes] = row["value"] * factor
    return lines


def table(kept: Rows) -> list[str]:
    """The figures that have a goal, and times faster than a peer."""
    lines = ["| command | figure | value | goal | met |", "|---|---|---|---|---|"]
    for name, rows in kept.items():
        for row in rows:
            if row["goal"] == "-" and not row["figure"].endswith("than KAI"):
                continue
            met = "" if row["goal"] == "-" else "yes" if row["met"] else "**no**"
            value = f"{row['value']:,.3f}".rstrip("0").rstrip(".")
            unit, goal = row["unit"], "" if row["goal"] == "-" else row["goal"]
            lines.append(f"| {name} | {row['figure']} | {value} {unit} | {goal} | {met} |")
    return lines


def growth_table(lines: Lines) -> list[str]:
    """The points of the plot."""
    sizes = sorted({nodes for line in lines.values() for nodes in line})
    rows = ["| ms, by nodes | " + " | ".join(f"{n:,}" for n in sizes) + " |"]
    rows.append("|---" * (1 + len(sizes)) + "|")
    for name, line in sorted(lines.items()):
        values = [f"{line[n]:.2f}" if n in line else "" for n in sizes]
        rows.append(f"| {name} | " + " | ".join(values) + " |")
    return rows


def write_page(kept: Rows) -> None:
    """The plot, and the part of the page between the marks."""
    lines = growth(kept)
    made = [f"Made on {_machine()}; times are the processor's unless they say wall clock.", ""]
    made += table(kept)
    if lines:
        draw(lines, PLOT)
        made += ["", "## How times grow", "", f"![Times by number of nodes](images/{PLOT.name})"]
        made += ["", *growth_table(lines)]
    page = PAGE.read_text()
    before, after = page.split(BEGIN)[0], page.split(END)[1]
    PAGE.write_text("\n".join([before + BEGIN, "", *made, "", END + after]))


def _machine() -> str:
    python = platform.python_version()
    return f"{os.cpu_count()} processors ({platform.machine()}), Python {python}"


def main() -> None:
    """Run what was asked for and write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.performance_page")
    parser.add_argument("--traces", type=Path, help="folder with openb/ and philly/")
    parser.add_argument("--only", nargs="+", default=None, help="names of commands")
    parser.add_argument("--write", action="store_true", help="run nothing, only write the page")
    args = parser.parse_args()
    kept: Rows = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    if not args.write:
        if args.traces is None:
            parser.error("--traces is needed to run the benchmarks")
        known = commands(args.traces)
        for name in args.only or known:
            kept[name] = run(known[name])
            ordered = {one: kept[one] for one in known if one in kept}
            KEPT.write_text(json.dumps(ordered, indent=1) + "\n")
        kept = json.loads(KEPT.read_text())
    write_page(kept)


if __name__ == "__main__":
    main()
