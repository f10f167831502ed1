"""The table of an experiment's trials, as the fake scheduler tells it: from their workloads."""

from carrel.testing.world import Json, World

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
