"""Runs scenarios from files: ``python tests/conformance/run.py FILE... [--only ID] [--json]``.

The form of the files is described beside the shared scenarios. Each scenario is run by itself; one
that cannot be understood or that breaks the core counts as failed. The last line is
``N passed, M failed``, with ``--json`` one object instead of everything.
"""

import argparse
import json
import sys
import traceback
from pathlib import Path

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from conformance.outcome import failures
from conformance.situation import Json


def main(arguments: list[str] | None = None) -> int:
    """Run the files that are named; the exit status is 1 when something failed."""
    parser = argparse.ArgumentParser(description="Run scheduling scenarios against the core.")
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--only", metavar="ID", help="run the scenarios whose id contains this")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    asked = parser.parse_args(arguments)
    scenarios = [one for path in asked.files for one in load(path)]
    if asked.only:
        scenarios = [one for one in scenarios if asked.only in one["id"]]
    wrong = {one["id"]: found for one in scenarios if (found := verdict(one))}
    if asked.json:
        count = len(scenarios) - len(wrong)
        print(json.dumps({"passed": count, "failed": len(wrong), "failures": wrong}))
    else:
        for scenario in scenarios:
            if scenario["id"] in wrong:
                print(f"{scenario['id']}: {scenario.get('title', '')}")
                print("\n".join(f"    {line}" for line in wrong[scenario["id"]]))
        print(f"{len(scenarios) - len(wrong)} passed, {len(wrong)} failed")
    return 1 if wrong else 0


def load(path: Path) -> list[Json]:
    """The scenarios of a file: a list, or an object with a list under ``scenarios``."""
    found = json.loads(path.read_text(encoding="utf-8"))
    scenarios: list[Json] = found["scenarios"] if isinstance(found, dict) else found
    return scenarios


def verdict(scenario: Json) -> list[str]:
    """The reasons why a scenario fails; empty when it passes."""
    try:
        return failures(scenario)
    except Exception:  # noqa: BLE001 - any way to break is a failed scenario, told in full
        return ["it broke:", *traceback.format_exc().splitlines()]


if __name__ == "__main__":
    sys.exit(main())
