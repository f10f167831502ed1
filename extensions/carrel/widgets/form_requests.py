"""Forms: the fields of each kind of work, made from the table of options, and their requests.

An answer to a form is always ``{"errors", "message", "forecast", "workload"}``: mistakes by field,
a general mistake, what would happen, and what was created.
"""

import asyncio
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from carrel import options
from carrel.client import AsyncClient
from carrel.client.notebooks import notebook_body
from carrel.errors import ApiError, BadSetting
from carrel.models import Forecast, Workload
from carrel.options.kinds import EVERY
from carrel.options.option import Option
from carrel.options.table import by_flag, sentence
from carrel.volumes import set_working_dir

COMMAND: Final = "command"
YES_OR_NO: Final = ("yes", "no")
ALWAYS: Final = frozenset({"name", "project", "gpus", "memory"})
FIRST: Final[Mapping[str, frozenset[str]]] = {
    "distributed": ALWAYS | {"workers"},
    "experiment": ALWAYS | {"param", "metric", "direction", "completions", "parallelism"},
    "inference": ALWAYS | {"min-replicas", "max-replicas", "port", "access"},
    "notebook": ALWAYS | {"notebook", "param"},
    "schedule": ALWAYS | {"notebook", "schedule", "time-zone"},
    "tensorboard": frozenset({"name", "project", "tensorboard"}),
}
LABELS: Final = {
    "gpus": "GPUs",
    "gpu-memory": "GPU memory",
    "gpu-devices": "GPUs to share",
    "gpu-type": "GPU models",
    "mig-profile": "MIG profile",
    "cpu": "CPU",
    "cpu-limit": "CPU limit",
    "param": "Parameters",
}
Given = Mapping[str, Any]


def fields_of(kind: str) -> list[dict[str, Any]]:
    """The fields of the form of a kind, as plain data. Raises ``BadSetting``."""
    if kind not in EVERY or EVERY[kind].part:
        raise BadSetting(f"There is no form for {kind!r}.", code="unknown_kind")
    rows = by_flag(options.rows(options.Surface.FORM, [kind]))
    asked = [_field(kind, same_flag) for same_flag in rows.values() if not same_flag[0].hidden]
    command = {
        "flag": COMMAND,
        "label": "Command",
        "help": "What runs, as in a shell: python train.py --epochs 40. No shell is started.",
        "group": "",
        "type": "text",
        "many": False,
        "choices": [],
        "shown": "python train.py",
        "first": True,
    }
    return [command, *asked] if EVERY[kind].command else asked


def _field(kind: str, same_flag: list[Option]) -> dict[str, Any]:
    row = same_flag[0]
    choices = YES_OR_NO if row.off else () if row.value is None else row.value.choices
    return {
        "flag": row.flag,
        "label": LABELS.get(row.flag) or row.flag.replace("-", " ").capitalize(),
        "help": sentence(same_flag) or sentence(by_flag(options.TABLE)[row.flag]),
        "group": row.group,
        "type": "choice" if choices else "switch" if row.value is None else "text",
        "many": row.many is not None,
        "choices": list(choices),
        "shown": "" if row.value is None else row.value.shown,
        "first": row.flag in FIRST.get(kind, ALWAYS),
    }


def mistakes(kind: str, given: Given) -> dict[str, str]:
    """The mistakes in single fields, by flag; each a sentence."""
    found: dict[str, str] = {}
    for flag, text in _raw(given).items():
        try:
            options.read({flag: text}, options.Surface.FORM, [kind])
        except BadSetting as error:
            found[flag] = str(error).removeprefix(f"--{flag} ")
    if EVERY[kind].command and not str(given.get(COMMAND, "")).strip():
        found[COMMAND] = "Say what runs."
    return found


def _raw(given: Given) -> dict[str, Any]:
    """The options among what was given, as ``carrel.options`` reads them."""
    known = by_flag(options.rows(options.Surface.FORM))
    raw: dict[str, Any] = {}
    for flag, text in given.items():
        if flag == COMMAND:
            continue
        if flag not in known:
            raise options.unknown(f"--{flag}", [f"--{one}" for one in known])
        raw[flag] = text == "yes" if known[flag][0].off and text in YES_OR_NO else text
    return raw


def request(kind: str, given: Given, *, project: str, folder: str = "") -> dict[str, Any]:
    """The API's request. Raises ``BadSetting``.

    Args:
        kind: of work.
        given: texts by flag, lists of texts where a flag may be repeated, booleans of switches.
        project: where nothing else is said.
        folder: where the work starts, where nothing else is said.
    """
    asked = options.read(_raw(given), options.Surface.FORM, [kind])
    body: dict[str, Any] = {"project": project, "kind": kind, **asked.fields}
    if "name" not in body and "name_prefix" not in body:
        body["name_prefix"] = EVERY[kind].prefix
    if EVERY[kind].command:
        body["command"] = _split(str(given.get(COMMAND, "")))
        if folder:
            set_working_dir(body, folder)
    return body


def _split(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise BadSetting(f"The command cannot be read: {error}.", code="bad_value") from error
    if not words:
        raise BadSetting("Say what runs.", code="command_required")
    return words


def refused(kind: str, error: ApiError) -> dict[str, str]:
    """The fields that the scheduler refused, by flag; fields without a flag are left out."""
    known = {
        path: row.flag for row in options.rows(options.Surface.FORM, [kind]) for path in row.fields
    } | {COMMAND: COMMAND}
    found: dict[str, str] = {}
    for one in error.errors:
        flag = known.get(str(one.get("field", "")))
        if flag is not None:
            found[flag] = f"It should be {one.get('expected') or 'something else'}."
    return found


NOTHING: Final[Mapping[str, Any]] = {"errors": {}, "message": "", "forecast": "", "workload": None}
NOTEBOOK: Final = "notebook"


async def submit(
    client: AsyncClient, kind: str, given: Mapping[str, Any], *, project: str, folder: str,
    dry_run: bool,
) -> dict[str, Any]:  # fmt: skip
    """Submit a form, or forecast it. Raises ``CarrelError`` for what is no mistake of the form."""
    try:
        errors = mistakes(kind, given)
        if errors:
            return {**NOTHING, "errors": errors}
        body = request(kind, given, project=project, folder=folder)
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
                "forecast": forecast_text(await client.create_workload(body, dry_run=True)),
            }
        made = await client.create_workload(body)
    except ApiError as error:
        if error.status >= 500:
            raise
        errors = refused(kind, error)
        return {**NOTHING, "errors": errors, "message": "" if errors else str(error)}
    return {**NOTHING, "workload": named(made)}


def forecast_text(answer: Forecast) -> str:
    """The forecast of a dry run, as sentences."""
    sentences = [answer.forecast.sentence or "It would be accepted.", answer.forecast.help]
    return " ".join(one for one in sentences if one)


def named(workload: Workload) -> dict[str, Any]:
    """Project, name and kind of a workload."""
    return {"project": workload.project, "name": workload.name, "kind": workload.spec.kind}


def _with_notebook(body: Mapping[str, Any], folder: str) -> dict[str, Any]:
    """The request with the notebook, without outputs. Raises ``BadSetting``."""
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
