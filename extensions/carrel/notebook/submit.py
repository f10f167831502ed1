"""Sends a cell away: what was captured and what was asked for become one request."""

import os
import sys
from collections.abc import Sequence
from typing import Any

from carrel.client import Client
from carrel.client.submit import default_project
from carrel.from_here import see
from carrel.notebook.capture import Captured
from carrel.options import Asked

ITS_OWN = "."
"""The folder that it starts in."""
PREFIXES = {
    "training": "train",
    "distributed": "train",
    "experiment": "sweep",
    "inference": "serve",
}


def cell_body(
    captured: Captured,
    asked: Asked,
    *,
    project: str,
    folder: str,
    python: str = sys.executable,
    how: Sequence[str] = (),
) -> dict[str, Any]:
    """The API's workload for a cell.

    The task starts in a folder of its own, where its files lie, and then enters ``folder``; ``how``
    are further words for ``starter.py``.
    """
    given = dict(asked.fields)
    environment = {"PYTHONUNBUFFERED": "1", **given.pop("environment", {})}
    given.pop("inputs", None)
    if "name" not in given:
        given.setdefault("name_prefix", PREFIXES[asked.kind])
    return {
        "kind": asked.kind,
        "command": [python, "job.py", folder, *how],
        "files": dict(captured.files),
        "inputs": list(captured.inputs),
        **given,
        "project": project,
        "environment": environment,
    }


def body_here(
    client: Client, captured: Captured, asked: Asked, how: Sequence[str] = ()
) -> dict[str, Any]:
    """The same for this kernel: its folder, its Python, the person's default project.

    Where jobs do not see that folder, it stays in its own.
    """
    project = asked.fields.get("project") or default_project(client)
    folder = os.getcwd()  # noqa: PTH109 - the kernel's folder as a string
    body = cell_body(captured, asked, project=project, folder=folder, how=how)
    if not see(body, folder):
        body["command"][2] = ITS_OWN
    return body
