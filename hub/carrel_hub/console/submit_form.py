"""The short form that submits a training."""

import shlex
from typing import Any

from carrel_hub.console.format import GIB
from carrel_hub.console.forms import Form

FIELDS = {
    "name": "name",
    "project": "project",
    "command": "command",
    "gpus": "gpus",
    "cpu_millicores": "cpus",
    "memory_bytes": "memory",
}


def empty_form(project: str) -> Form:
    """What the form shows at first."""
    return Form({"project": project, "gpus": "1", "cpus": "1", "memory": "4"})


def workload_body(form: Form) -> dict[str, Any]:
    """The request to the API. Look at ``form.refused`` before sending it."""
    body = {
        "kind": "training",
        "name": form.required("name"),
        "project": form.required("project"),
        "command": _command(form),
        "gpus": form.amount("gpus", empty=0.0),
        "cpu_millicores": round((form.amount("cpus") or 1.0) * 1000),
        "memory_bytes": round((form.amount("memory") or 1.0) * GIB),
    }
    for name in ("cpus", "memory"):
        if form.value(name) and form.amount(name) == 0:
            form.errors[name] = "This should be more than 0."
    return body


def _command(form: Form) -> list[str]:
    text = form.required("command")
    try:
        words = shlex.split(text)
    except ValueError:
        form.errors["command"] = "A quotation mark or backslash at the end has no partner."
        return []
    return words
