"""Sends a cell away: what was captured and what was asked for become one request."""

import os
import sys
from collections.abc import Mapping
from typing import Any

from carrel.client import Client
from carrel.client.submit import default_project
from carrel.notebook.capture import Captured


def cell_body(
    captured: Captured,
    fields: Mapping[str, Any],
    *,
    project: str,
    folder: str,
    python: str = sys.executable,
) -> dict[str, Any]:
    """The API's workload for a cell. ``fields`` are those that were asked for.

    The task starts in a folder of its own, where its files lie, and then enters ``folder``.
    """
    given = dict(fields)
    environment = {"PYTHONUNBUFFERED": "1", **given.pop("environment", {})}
    given.pop("inputs", None)
    if "name" not in given:
        given["name_prefix"] = "train"
    return {
        "kind": "training",
        "project": project,
        "command": [python, "job.py", folder],
        "files": dict(captured.files),
        "inputs": list(captured.inputs),
        "environment": environment,
        **given,
    }


def body_here(client: Client, captured: Captured, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The same for this kernel: its folder, its Python, the person's default project."""
    given = dict(fields)
    project = given.pop("project", None) or default_project(client)
    return cell_body(captured, given, project=project, folder=os.getcwd())  # noqa: PTH109 - the kernel's folder as a string
