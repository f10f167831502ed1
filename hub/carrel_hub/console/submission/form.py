"""The form that submits work: one for each kind, its fields made from the table of options."""

import shlex
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

import msgspec

from carrel import options
from carrel.errors import BadSetting
from carrel.models import Workload
from carrel.options import EVERY, Kind, Option, Surface
from carrel_hub.console.forms import Form
from carrel_hub.console.submission import code
from carrel_hub.console.submission.offers import ASSET_FLAGS, FormChoice, FormChoices, Usual

USUAL: Final = "training"
OPEN_GROUPS: Final = frozenset({"Each task gets", "Notebooks", "By the clock", "TensorBoard"})
OWN_FIELDS: Final = frozenset({"name", "project"})  # stand at the top, with the command
ASSETS: Final = "Put together from"
WORDS: Final = {
    "gpus": "GPUs",
    "gpu-memory": "GPU memory",
    "gpu-devices": "GPUs to share",
    "gpu-type": "GPU models",
    "mig-profile": "MIG profile",
    "cpu": "CPUs",
    "environment-asset": "Environment",
    "environment": "Variables",
    "compute": "Compute resource",
    "data": "Data sources",
    "working-dir": "Folder to start in",
    "git": "Code from Git",
    "backoff-limit": "Retries",
    "retry": "Retries by class",
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
class FormField:
    """A field of the form, for one option.

    Attributes:
        name: of the form's field, the option's flag.
        shape: ``text``, ``switch``, ``choice``, ``three`` (yes, no, or as usual), ``lines``,
            ``offered`` (one of ``offers``) or ``several`` (some of them).
        placeholder: what is taken when it is left empty.
        known: what may be typed, among others.
    """

    name: str
    label: str
    hint: str
    shape: str
    choices: tuple[str, ...] = ()
    placeholder: str = ""
    offers: Sequence[FormChoice] = ()
    known: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class FieldGroup:
    """Fields under one heading; those that most people leave alone are folded away."""

    title: str
    fields: Sequence[FormField]
    folded: bool


def kind_named(name: str) -> Kind:
    """The kind of work that a form is for; an unknown one is a training."""
    found = EVERY.get(name, EVERY[USUAL])
    return EVERY[USUAL] if found.part else found


def groups(
    kind: str, offers: FormChoices, form: Form, ruled: Container[str] = frozenset()
) -> list[FieldGroup]:
    """The fields of a kind's form, as grouped in the table, the assets first.

    A field for which nothing is offered is left out, unless it has a value or a rule of a policy
    (``ruled``). A group is folded unless it is one that most people fill in or the form has
    something in it.
    """
    shown = [
        row
        for row in _rows(kind)
        if row.flag not in OWN_FIELDS
        and (offers.choices.get(row.flag, True) or form.value(row.flag) or row.flag in ruled)
    ]
    assets = [_field(row, offers) for row in shown if row.flag in ASSET_FLAGS]
    others = [row for row in shown if row.flag not in ASSET_FLAGS]
    found = [FieldGroup(ASSETS, assets, folded=False)] if assets else []
    for title, rows in groupby(others, _group):
        fields = [_field(row, offers) for row in rows]
        said = any(form.value(one.name) or one.name in form.errors for one in fields)
        found.append(FieldGroup(title, fields, _folded(kind, title) and not said))
    return found


def rows_of(kind: str) -> tuple[Option, ...]:
    """The options in the form of a kind."""
    return _rows(kind)


def empty_form(project: str, kind: str = USUAL) -> Form:
    """The initial values of the form."""
    return Form({"project": project, "kind": kind})


def form_again(job: Workload) -> Form:
    """The form of an earlier piece of work, filled with what it asked for; it has no name yet."""
    kind = kind_named(job.spec.kind)
    asked = msgspec.to_builtins(job.spec) | {"labels": dict(job.labels)}
    texts = {row.flag: spelt(row, asked) for row in _rows(kind.name)}
    values = {flag: text for flag, text in texts.items() if text}
    values |= {"project": job.project, "kind": kind.name, "again": f"{job.project}/{job.name}"}
    if kind.command or (job.spec.schedule is not None and job.spec.schedule.runs == "training"):
        values["command"] = shlex.join(job.spec.command)
    form = Form(values)
    code.fill(form, job)
    return form


def fill_from(form: Form, fields: Mapping[str, Any]) -> None:
    """Give a new form the values of a template."""
    asked = dict(fields)
    texts = {row.flag: spelt(row, asked) for row in _rows(form.value("kind"))}
    form.values |= {flag: text for flag, text in texts.items() if text}
    if asked.get("command"):
        form.values["command"] = shlex.join(asked["command"])


def template_of(body: dict[str, Any]) -> dict[str, Any]:
    """A request as a template for its kind; a folder lasts no longer than its work."""
    left_out = {"kind", "name", "name_prefix", "project", "secret_environment"}
    if "digest" in body.get(code.CODE, {}):
        left_out.add(code.CODE)
    fields = {name: value for name, value in body.items() if name not in left_out}
    return {"kinds": [body["kind"]], "fields": fields}


def changes_of(body: dict[str, Any], job: Workload) -> dict[str, Any]:
    """The fields in which a request differs from an earlier workload, for running that again.

    What a form shows and is left empty gets its usual value; what it does not show stays.
    """
    changes = {name: value for name, value in body.items() if name not in ("kind", "project")}
    for row in _rows(job.spec.kind):
        name = row.fields[0] if len(row.fields) == 1 else ""
        if row.flag != "secret" and name and not {".", "["} & {*name}:
            changes.setdefault(name, None)
    if job.spec.assets is not None:  # a whole, unlike other sections: one left out is not kept
        asked = body.get("assets") or {}
        changes["assets"] = {"environment": None, "compute": None, "data_sources": [], **asked}
    if job.spec.code is not None:
        changes[code.CODE] = code.whole(changes[code.CODE])
    if changes.get("routes") == [{}]:  # nothing was said of ports
        del changes["routes"]
    if changes.get("name") is None:  # numbered behind the earlier one
        changes.pop("name", None)
        changes.pop("name_prefix", None)
    changes.pop("project", None)
    return changes


def spelt(row: Option, asked: dict[str, Any]) -> str:
    """A request's value of an option as typed; empty for defaults and hidden options."""
    if len(row.fields) != 1 or row.flag in OWN_FIELDS | {"secret"} or "[" in row.fields[0]:
        return ""
    found: Any = asked
    for part in row.fields[0].split("."):
        found = found.get(part) if isinstance(found, dict) else None
    if found is None or found == row.default:
        return ""
    if row.value is None:
        return "yes" if found else "no"
    if row.flag == "volume":
        return "\n".join(_volume({"destination": "", "read_only": False} | one) for one in found)
    if row.many == "mapping":
        return "\n".join(f"{key}={value}" for key, value in found.items() if _is_plain(value))
    if row.many == "list":
        return "\n".join(row.value.spell(one) for one in found)
    if isinstance(found, list):
        return ",".join(found)
    spelt_whole = isinstance(found, str | int | float) or row.fields == (code.CODE,)
    return row.value.spell(found) if spelt_whole else ""


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | int | float) and "\n" not in str(value)


def _volume(found: dict[str, Any]) -> str:
    where = found["destination"]
    ending = ":ro" if found["read_only"] else ""
    return f"{found['source']}{f':{where}' if where else ''}{ending}"


def fields_of(kind: str) -> dict[str, str]:
    """Names of the API's fields to those of the form, the first one where several fill it."""
    found = {"command": "command"}
    for row in _rows(kind):
        for path in row.fields:
            found.setdefault(path, row.flag)
    if code.is_taken_along(kind):
        found["code.digest"] = code.CODE
    return found


def workload_body(form: Form) -> dict[str, Any]:
    """The request to the API; valid only if ``form.refused`` is empty."""
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
    if code.is_taken_along(kind.name):
        code.add(form, body)
    return body


def _asked(form: Form, kind: Kind, texts: dict[str, Any]) -> dict[str, Any]:
    try:
        return options.read(texts, Surface.FORM, [kind.name], environ={}).fields
    except BadSetting as error:
        form.general = str(error)
        return {}


def _check(form: Form, kind: str, flag: str, text: Any) -> None:
    """Assign an option's error to its field."""
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


def _field(row: Option, offers: FormChoices) -> FormField:
    words = row.flag.replace("-", " ")
    label = WORDS.get(row.flag, words[0].upper() + words[1:])
    usual = offers.usual.get(row.flag)
    hint = _hint(row, usual)
    if row.flag in offers.choices:
        shape = "several" if row.many else "offered"
        return FormField(row.flag, label, hint, shape, offers=offers.choices[row.flag])
    if row.value is None:
        return FormField(row.flag, label, hint, "three" if row.off else "switch")
    if row.many:
        return FormField(row.flag, label, f"{hint} One on each line: {row.shown}", "lines")
    if row.value.choices:
        return FormField(row.flag, label, hint, "choice", row.value.choices)
    text = "" if row.default in (None, "") else row.value.spell(row.default)
    return FormField(
        row.flag,
        label,
        hint,
        "text",
        placeholder=usual.text if usual else text,
        known=offers.known.get(row.flag, ()),
    )


def _hint(row: Option, usual: Usual | None) -> str:
    """The help of an option, with its default."""
    if usual is None:
        return options.sentence([row])
    text = ", ".join(usual.text.splitlines())
    return f"{row.help} By default {text}, says the template {usual.template}."
