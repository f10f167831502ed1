"""The choices of a submission form, and the defaults that it shows.

Assets, groups of nodes and models of GPUs are offered by name as they are there; a field that
nothing could be chosen for is left out. What an administrator's default templates say is told as
what is usual, because it is taken where the form says nothing.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from carrel.models import Node
from carrel.options import Option
from carrel_schema.governance.assets import AssetOut
from carrel_schema.governance.templates import TemplateOut
from carrel_schema.scopes import LEVELS, Scope, scopes_over

ASSET_FLAGS: Final[Mapping[str, str]] = {
    "environment-asset": "environment",
    "compute": "compute",
    "data": "data-source",
}
"""Options that name assets, with the type of them."""


@dataclass(frozen=True, slots=True)
class FormChoice:
    """A choice of a field: the value, and its text."""

    value: str
    text: str


@dataclass(frozen=True, slots=True)
class Usual:
    """The value that is taken where a field is empty, and the template that sets it."""

    text: str
    template: str


@dataclass(frozen=True, slots=True)
class FormChoices:
    """The choices of the form.

    Attributes:
        choices: by the flag of a field, of those that take one thing (or some) of a list.
        known: by flag, suggestions for fields that take other texts, too.
        usual: by flag, what default templates say.
    """

    choices: Mapping[str, Sequence[FormChoice]] = field(default_factory=dict)
    known: Mapping[str, Sequence[str]] = field(default_factory=dict)
    usual: Mapping[str, Usual] = field(default_factory=dict)


def choices_of(
    assets: Iterable[AssetOut],
    nodes: Sequence[Node],
    user: str,
    projects: Iterable[str],
    locked: Mapping[str, str],
) -> dict[str, list[FormChoice]]:
    """Assets for work of a user in these projects, and groups of nodes, by flag.

    Args:
        assets: all that the user sees.
        nodes: of the installation.
        user: whose work it is.
        projects: that the user may submit to.
        locked: the scope of the policy that locks a field, by flag: the asset of a locked field is
            never one of a narrower scope than the policy's.
    """
    own = {f"project/{name}" for name in projects} | {f"user/{user}"}
    levels = ("platform", "department")
    there = [one for one in assets if one.scope in own or Scope.parse(one.scope).level in levels]
    found = {
        flag: _named(one for one in there if one.type == kind and _is_meant(one, locked.get(flag)))
        for flag, kind in ASSET_FLAGS.items()
    }
    groups = sorted({node.group for node in nodes} - {""})
    return {**found, "node-group": [_group(name, nodes) for name in groups]}


def models_of(nodes: Sequence[Node]) -> list[str]:
    """The GPU models in the cluster."""
    return sorted({device.name for node in nodes for device in node.devices if device.name})


def default_templates(
    templates: Iterable[TemplateOut], kind: str, project: str, department: str, user: str
) -> list[TemplateOut]:
    """The templates that apply to this work without being named, the narrowest scope last."""
    scopes = scopes_over(project=project, department=department, user=user)
    found = [
        one
        for one in templates
        if one.default and Scope.parse(one.scope) in scopes and kind in (one.kinds or [kind])
    ]
    return sorted(found, key=lambda one: scopes.index(Scope.parse(one.scope)))


def usual_of(
    templates: Iterable[TemplateOut],
    rows: Iterable[Option],
    spelt: Callable[[Option, dict[str, Any]], str],
) -> dict[str, Usual]:
    """The values of default templates, by flag; ``spelt`` writes an option of its fields."""
    shown = list(rows)
    found: dict[str, Usual] = {}
    for one in templates:
        texts = {row.flag: spelt(row, dict(one.fields)) for row in shown}
        found |= {flag: Usual(text, one.name) for flag, text in texts.items() if text}
    return found


def _is_meant(asset: AssetOut, locked_by: str | None) -> bool:
    """Whether a field may name the asset, by the scope of the policy that locks it, if one does."""
    if locked_by is None:
        return True
    level = LEVELS.index(Scope.parse(locked_by).level)
    return LEVELS.index(Scope.parse(asset.scope).level) <= level


def _named(assets: Iterable[AssetOut]) -> list[FormChoice]:
    """A choice for each name: of several assets the one of the narrowest scope describes it."""
    found: dict[str, FormChoice] = {}
    for one in assets:
        about = f": {one.description}" if one.description else ""
        where = "" if one.scope.startswith("user/") else f" ({one.scope})"
        found[one.name] = FormChoice(one.name, f"{one.name}{about}{where}")
    return sorted(found.values(), key=lambda one: one.value)


def _group(name: str, nodes: Sequence[Node]) -> FormChoice:
    inside = [node for node in nodes if node.group == name]
    gpus = sum(node.gpu_milli for node in inside)
    free = gpus - sum(node.gpu_allocated_milli for node in inside)
    return FormChoice(name, f"{name}: {free / 1000:g} of {gpus / 1000:g} GPUs free")
