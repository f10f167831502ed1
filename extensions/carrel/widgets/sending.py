"""Sends forms of every kind, and the open notebook as a job.

An answer to a form is always ``{"errors", "message", "forecast", "workload"}``: what is wrong with
single fields, what is wrong at all, what would happen, and what was made.
"""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from carrel.client import AsyncClient
from carrel.client.notebooks import notebook_body
from carrel.errors import ApiError, BadSetting
from carrel.models import Forecast, Workload
from carrel.widgets import forms

NOTHING: Final[Mapping[str, Any]] = {"errors": {}, "message": "", "forecast": "", "workload": None}
NOTEBOOK: Final = "notebook"


async def sent(
    client: AsyncClient, kind: str, given: Mapping[str, Any], *, project: str, folder: str,
    dry_run: bool,
) -> dict[str, Any]:  # fmt: skip
    """Send a form, or ask what would happen. Raises ``CarrelError`` when that is not its fault."""
    try:
        errors = forms.mistakes(kind, given)
        if errors:
            return {**NOTHING, "errors": errors}
        body = forms.request(kind, given, project=project, folder=folder)
        if kind == NOTEBOOK:
            body = await asyncio.to_thread(_with_notebook, body, folder)
    except BadSetting as error:
        return {**NOTHING, "message": str(error)}
    return await _asked(client, kind, body, dry_run=dry_run)


async def _asked(
    client: AsyncClient, kind: str, body: Mapping[str, Any], *, dry_run: bool
) -> dict[str, Any]:
    try:
        if dry_run:
            return {
                **NOTHING,
                "forecast": foreseen(await client.create_workload(body, dry_run=True)),
            }
        made = await client.create_workload(body)
    except ApiError as error:
        if error.status >= 500:
            raise
        errors = forms.refused(kind, error)
        return {**NOTHING, "errors": errors, "message": "" if errors else str(error)}
    return {**NOTHING, "workload": named(made)}


def foreseen(answer: Forecast) -> str:
    """What a dry run says, as sentences."""
    told = [answer.forecast.sentence or "It would be accepted.", answer.forecast.help]
    return " ".join(one for one in told if one)


def named(workload: Workload) -> dict[str, Any]:
    """Enough to find it again."""
    return {"project": workload.project, "name": workload.name, "kind": workload.spec.kind}


def _with_notebook(body: Mapping[str, Any], folder: str) -> dict[str, Any]:
    """The request with the notebook itself in it, without outputs. Raises ``BadSetting``."""
    fields = dict(body)
    section = msgspec.convert(fields.pop("notebook"), dict[str, Any])
    path = Path(folder, section.pop("path", ""))
    return notebook_body(
        path,
        section.pop("parameters", None),
        output=section.pop("output", ""),
        kernel=section.pop("kernel", ""),
        cell_timeout=section.pop("cell_timeout_seconds", None),
        **fields,
    )
