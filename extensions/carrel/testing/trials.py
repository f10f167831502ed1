"""The table of an experiment's trials, as the fake scheduler tells it: from their workloads."""

from carrel.testing.world import Json, Refusal, World

STATES = {"pending": "waiting", "succeeded": "completed", "failed": "failed", "stopped": "stopped"}


def trials_of(world: World, project: str, name: str) -> Json:
    """All trials of an experiment. Raises ``Refusal`` when it is not there."""
    owner = world.find(project, name)
    spec = owner["spec"]["experiment"]
    metric = spec.get("metric", "objective")
    parts = [one for one in world.workloads.values() if one["spec"].get("owner") == owner["uid"]]
    return {
        "metric": metric,
        "direction": spec.get("direction", "minimize"),
        "best": None,
        "items": [_row(part, metric) for part in parts],
    }


def best_of(world: World, project: str, name: str, kind: str) -> Json:
    """A workload with the best trial's parameters. Raises ``Refusal`` when there is none."""
    table = trials_of(world, project, name)
    sign = 1 if table["direction"] == "minimize" else -1
    done = [
        row for row in table["items"] if row["state"] == "completed" and row["value"] is not None
    ]
    if not done:
        raise Refusal(409, "no_best_trial", "No trial has come to an end with a value.")
    best = min(done, key=lambda row: sign * row["value"])
    body = {"name": f"{name}-best", "project": project, "kind": kind, "command": ["true"]}
    told = {
        f"CARREL_PARAM_{key.upper()}": str(best["parameters"][key]) for key in best["parameters"]
    }
    section: Json = {"inference": {}} if kind == "inference" else {}
    return {"trial": best["number"], "workload": {**body, "environment": told, **section}}


def _row(part: Json, metric: str) -> Json:
    status, trial = part["status"], part["spec"]["trial"]
    began, ended = status.get("started_at"), status.get("ended_at")
    return {
        "number": trial["number"],
        "state": status.get("trial_state") or STATES.get(status["phase"], "running"),
        "parameters": trial.get("parameters", {}),
        "value": status.get("metrics", {}).get(metric),
        "workload": part["name"],
        "phase": status["phase"],
        "attempt": status["attempt"],
        "seconds": None if began is None or ended is None else ended - began,
        "error": (status.get("reason") or {}).get("sentence", ""),
    }
