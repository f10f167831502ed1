"""A form for each kind of work, made from the table of options: what it asks, and what it sends.

Pure but for ``carrel.options``, which knows how texts are read.
"""

import shlex
from collections.abc import Mapping
from typing import Any, Final

from carrel import options
from carrel.errors import ApiError, BadSetting
from carrel.from_here import start_in
from carrel.options.kinds import EVERY
from carrel.options.option import Option
from carrel.options.table import by_flag, sentence

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
LABELS: Final = {"gpus": "GPUs", "cpu": "CPU", "cpu-limit": "CPU limit", "param": "Parameters"}
Given = Mapping[str, Any]


def fields_of(kind: str) -> list[dict[str, Any]]:
    """What the form of a kind asks, as the page needs it. Raises ``BadSetting``."""
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
    """What is wrong with single fields, by flag; each a sentence."""
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
            start_in(body, folder)
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
    """What the scheduler finds wrong with fields, by flag; fields without a flag are left out."""
    known = {
        path: row.flag for row in options.rows(options.Surface.FORM, [kind]) for path in row.fields
    } | {COMMAND: COMMAND}
    found: dict[str, str] = {}
    for one in error.errors:
        flag = known.get(str(one.get("field", "")))
        if flag is not None:
            found[flag] = f"It should be {one.get('expected') or 'something else'}."
    return found
