"""The form that submits work: one for each kind, its fields made from the table of options."""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from carrel import options
from carrel.errors import BadSetting
from carrel.options import EVERY, Kind, Option, Surface
from carrel_hub.console.forms import Form

USUAL: Final = "training"
OPEN_GROUPS: Final = frozenset({"Each task gets", "Notebooks", "By the clock", "TensorBoard"})
OWN_FIELDS: Final = frozenset({"name", "project"})  # stand at the top, with the command
FIRST_VALUES: Final = {"gpus": "1", "cpu": "1", "memory": "4G"}
WORDS: Final = {
    "gpus": "GPUs",
    "cpu": "CPUs",
    "cpu-limit": "CPU limit",
    "large-shm": "Large /dev/shm",
    "param": "Parameters",
    "label": "Labels",
    "volume": "Volumes",
    "secret": "Secrets",
    "port": "Ports",
    "in-flight": "Requests in flight",
}


@dataclass(frozen=True, slots=True)
class Field:
    """One option as a form shows it.

    Attributes:
        name: of the form's field, the option's flag.
        shape: ``text``, ``switch``, ``choice``, ``three`` (yes, no, or as usual), or ``lines``.
        placeholder: what is taken when it is left empty.
    """

    name: str
    label: str
    hint: str
    shape: str
    choices: tuple[str, ...] = ()
    placeholder: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    """Fields under one heading; those that most people leave alone are folded away."""

    title: str
    fields: Sequence[Field]
    folded: bool


def kind_named(name: str) -> Kind:
    """The kind of work that a form is for; an unknown one is a training."""
    found = EVERY.get(name, EVERY[USUAL])
    return EVERY[USUAL] if found.part else found


def groups(kind: str) -> list[Group]:
    """The fields of a kind's form, as grouped in the table."""
    shown = [row for row in _rows(kind) if row.flag not in OWN_FIELDS]
    found = [(title, [_field(row) for row in rows]) for title, rows in groupby(shown, _group)]
    return [Group(title, fields, _folded(kind, title)) for title, fields in found]


def empty_form(project: str, kind: str = USUAL) -> Form:
    """What the form shows at first."""
    shown = {row.flag for row in _rows(kind)}
    first = {flag: text for flag, text in FIRST_VALUES.items() if flag in shown}
    if kind in ("tensorboard", "schedule", "notebook"):
        first.pop("gpus", None)
    return Form({"project": project, "kind": kind, **first})


def fields_of(kind: str) -> dict[str, str]:
    """Names of the API's fields to those of the form, the first one where several fill it."""
    found = {"command": "command"}
    for row in _rows(kind):
        for path in row.fields:
            found.setdefault(path, row.flag)
    return found


def workload_body(form: Form) -> dict[str, Any]:
    """The request to the API. Look at ``form.refused`` before sending it."""
    kind = kind_named(form.value("kind"))
    texts = dict(_texts(form, kind.name))
    for flag, text in texts.items():
        _check(form, kind.name, flag, text)
    body: dict[str, Any] = {"kind": kind.name, "project": form.required("project")}
    if kind.command or (kind.name == "schedule" and form.value("command")):
        body["command"] = _command(form)
    if not form.refused:
        body |= _asked(form, kind, texts)
    if "name" not in body:
        body["name_prefix"] = kind.prefix
    if kind.name == "schedule" and "command" in body:
        body["schedule"] = {"runs": "training", **body.get("schedule", {})}
    return body


def _asked(form: Form, kind: Kind, texts: dict[str, Any]) -> dict[str, Any]:
    try:
        return options.read(texts, Surface.FORM, [kind.name], environ={}).fields
    except BadSetting as error:
        form.general = str(error)
        return {}


def _check(form: Form, kind: str, flag: str, text: Any) -> None:
    """Put what is wrong with one option to its field."""
    if flag == "volume" and not all(one.startswith("/") for one in text):
        form.errors[flag] = "A folder is given with its whole path, as /data."
        return
    try:
        options.read({flag: text}, Surface.FORM, [kind], environ={})
    except BadSetting as error:
        if error.code not in ("bad_range", "option_of_another_kind"):  # said of all together
            form.errors[flag] = str(error).removeprefix(f"--{flag} ")


def _texts(form: Form, kind: str) -> Iterator[tuple[str, Any]]:
    """Raw texts by flag, as ``options.read`` takes them; empty fields are left out."""
    for row in _rows(kind):
        text = form.value(row.flag)
        if not text:
            continue
        if row.value is None:
            yield row.flag, text != "no"
        elif row.many:
            yield row.flag, [line.strip() for line in text.splitlines() if line.strip()]
        else:
            yield row.flag, text


def _command(form: Form) -> list[str]:
    text = form.required("command")
    try:
        words = shlex.split(text)
    except ValueError:
        form.errors["command"] = "A quotation mark or backslash at the end has no partner."
        return []
    return words


def _rows(kind: str) -> tuple[Option, ...]:
    return options.rows(Surface.FORM, [kind])


def _group(row: Option) -> str:
    return row.group


def _folded(kind: str, title: str) -> bool:
    own = {row.group for row in options.TABLE if kind in row.kinds and len(row.kinds) < 3}
    return title not in OPEN_GROUPS | own or (kind == USUAL and title not in OPEN_GROUPS)


def _field(row: Option) -> Field:
    words = row.flag.replace("-", " ")
    label = WORDS.get(row.flag, words[0].upper() + words[1:])
    hint = options.sentence([row])
    if row.value is None:
        return Field(row.flag, label, hint, "three" if row.off else "switch")
    if row.many:
        return Field(row.flag, label, f"{hint} One on each line: {row.shown}", "lines")
    if row.value.choices:
        return Field(row.flag, label, hint, "choice", row.value.choices)
    usual = "" if row.default in (None, "") else row.value.spell(row.default)
    return Field(row.flag, label, hint, "text", placeholder=usual)
