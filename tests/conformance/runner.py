"""Runs a scenario: one action once, or full cycles until the expectation holds and stays."""

from typing import Any

from carrel_scheduler.core.actions import allocate, preempt, reclaim
from carrel_scheduler.core.decide import ACTIONS, Action, decide_with
from carrel_scheduler.core.invariants import check_plan
from conformance.scenario import NOW, Outcome, after, build, differences, outcome

ACTIONS_OF: dict[str, tuple[Action, ...]] = {
    "allocate": (allocate.run,),
    "reclaim": (reclaim.run,),
    "preempt": (preempt.run,),
    "cycle": ACTIONS,
}
AT_REST = {"running", "pending", "releasing"}


def failures(scenario: dict[str, Any]) -> list[str]:
    """Why a scenario fails; empty when it passes."""
    if scenario["run"] == "cycle":
        return _cycles(scenario)
    found, broken = _decide(scenario)
    return broken + differences(scenario, found)


def _decide(scenario: dict[str, Any]) -> tuple[Outcome, list[str]]:
    built = build(scenario)
    plan = decide_with(built.state, NOW, ACTIONS_OF[scenario["run"]])
    return outcome(built, plan), check_plan(built.state, plan)


def _cycles(scenario: dict[str, Any]) -> list[str]:
    present, rounds = scenario, scenario["rounds"]
    wrong = ["no round was run"]
    for _ in range(rounds["until"]):
        present, broken = _round(present)
        wrong = broken + differences(scenario, _standing(present))
        if not wrong:
            break
    for _ in range(rounds["stay"] if not wrong else 0):
        present, broken = _round(present)
        wrong = broken + differences(scenario, _standing(present))
        if wrong:
            return ["does not stay:", *wrong]
    return wrong


def _round(scenario: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    found, broken = _decide(scenario)
    return after(scenario, found), broken


def _standing(scenario: dict[str, Any]) -> Outcome:
    tasks = [task for job in scenario["jobs"] for task in job["tasks"]]
    return {task["name"]: (task["state"], task["node"]) for task in tasks}
