"""``carrel policy``: rules for the fields of submitted work (administrators)."""

from typing import TYPE_CHECKING, Annotated

import typer

from carrel.cli.commands.admin.documents import (
    AnyScopeOption,
    FileOption,
    ScopeOption,
    read_document,
)
from carrel.cli.common import (
    NoHeaders,
    Output,
    OutputOption,
    ProjectOption,
    connected,
    document,
    fields,
    for_programs,
    note,
    project_of,
    say,
    show,
    table,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from carrel_schema.governance.policies import Bound, EffectiveRule, FieldRule

EXACT = 1e6
"""Numbers below are written without an exponent."""
Name = Annotated[str, typer.Argument(metavar="POLICY", help="The policy.")]


def list_policies(
    *,
    scope: AnyScopeOption = None,
    output: OutputOption = Output.TABLE,
    no_headers: NoHeaders = False,
) -> None:
    """List the policies that bind your work; all for administrators."""
    with connected() as client:
        found = client.list_policies(scope)
    rows = (
        [one.name, one.scope, ", ".join(one.kinds) or "all", ", ".join(one.rules), one.changed_by]
        for one in found
    )
    headers = ["NAME", "SCOPE", "KINDS", "FIELDS", "CHANGED BY"]
    show(found, output, headers, rows, no_headers=no_headers)


def describe(
    name: Name, *, scope: ScopeOption = "platform", output: OutputOption = Output.TABLE
) -> None:
    """Show a policy in full."""
    with connected() as client:
        one = client.get_policy(name, scope)
    if for_programs(output):
        document(one, output)
        return
    facts = [
        ("Name", one.name),
        ("Scope", one.scope),
        ("Description", one.description),
        ("Kinds", ", ".join(one.kinds) or "all"),
        ("Version", f"{one.version}, by {one.changed_by}"),
    ]
    fields(facts)
    say()
    table(["FIELD", "RULE", "MESSAGE"], list(_rule_rows(one.rules)))


def apply(
    name: Name,
    *,
    file: FileOption,
    scope: ScopeOption = "platform",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check it and say what it would refuse.")
    ] = False,
) -> None:
    """Make a policy of a file, or replace it; live work that it would refuse goes on."""
    with connected() as client:
        made = client.put_policy(name, scope, read_document(file), dry_run=dry_run)
    done = "is right; nothing was written" if dry_run else f"applied, version {made.version}"
    say(f"Policy {name} of {scope} {done}.")
    for one in made.would_refuse:
        note(f"{one.project}/{one.name} goes on and would be refused now: {one.sentence}")


def delete(name: Name, *, scope: ScopeOption = "platform") -> None:
    """Remove a policy."""
    with connected() as client:
        client.delete_policy(name, scope)
    say(f"Policy {name} of {scope} deleted successfully.")


def effective(
    *,
    project: ProjectOption = None,
    kind: Annotated[str, typer.Option("--kind", help="The kind of work.")] = "training",
    output: OutputOption = Output.TABLE,
) -> None:
    """Show all that policies say of work of a kind in a project."""
    with connected() as client:
        found = client.effective_policy(project_of(client, project), kind)
    rows = list(_effective_rows(found.rules))
    show(found, output, ["FIELD", "RULE", "POLICY", "SCOPE"], rows)


def _rule_rows(rules: "Mapping[str, FieldRule]") -> "Iterator[list[str]]":
    for path, rule in rules.items():
        parts = [
            f"{name} {_shown(value)}"
            for name, value in (("default", rule.default), ("min", rule.min), ("max", rule.max))
            if value is not None
        ]
        parts += [word for word in ("required", "locked") if getattr(rule, word)]
        if rule.allowed:
            parts.append("allowed " + ", ".join(map(_shown, rule.allowed)))
        yield [path, "; ".join(parts), rule.message]


def _effective_rows(rules: "Mapping[str, EffectiveRule]") -> "Iterator[list[str]]":
    for path, rule in rules.items():
        for word in ("locked", "default", "min", "max", "allowed", "required"):
            bound: Bound | None = getattr(rule, word)
            if bound is None or (word == "default" and rule.locked is not None):
                continue
            value = bound.value if isinstance(bound.value, list) else [bound.value]
            said = "" if word == "required" else f" {', '.join(map(_shown, value))}"
            yield [path, f"{word}{said}", bound.policy, bound.scope]


def _shown(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) and abs(value) < EXACT else str(value)
