"""``carrel department``: rules that bind several projects together (administrators)."""

from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from carrel.cli.commands.projects import (
    RuleOptions,
    groups_said,
    show_impact,
    tell_findings,
    without_nulls,
)
from carrel.cli.common import (
    NoHeaders,
    Output,
    OutputOption,
    connected,
    document,
    fields,
    for_programs,
    say,
    show,
)
from carrel.cli.typer_options import with_record
from carrel.errors import BadSetting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from carrel.client import Client
    from carrel.models import Department, Project

Name = Annotated[str, typer.Argument(metavar="DEPARTMENT", help="The department.")]


def list_departments(*, output: OutputOption = Output.TABLE, no_headers: NoHeaders = False) -> None:
    """List departments: what is guaranteed to their projects together, used, borrowed."""
    from carrel.cli import cells
    from carrel.models import by_department

    with connected() as client:
        departments = client.list_departments()
        inside = dict(by_department(client.list_projects()))
    rows = (cells.department_row(one, inside.get(one.name, [])) for one in departments)
    headers, right = cells.DEPARTMENT_COLUMNS, cells.DEPARTMENT_NUMBERS
    show(departments, output, headers, rows, no_headers=no_headers, right=right)


def describe(name: Name, *, output: OutputOption = Output.TABLE) -> None:
    """Show a department in full, with its projects."""
    from carrel.cli import cells
    from carrel.cli.common import table
    from carrel.models import by_department

    with connected() as client:
        one = _find(client, name)
        inside = dict(by_department(client.list_projects())).get(name, [])
    if for_programs(output):
        document(one, output)
        return
    fields(_facts(one, inside))
    if inside:
        say()
        rows = [cells.project_row(project) for project in inside]
        table(cells.PROJECT_COLUMNS, rows, title="Projects:", right=cells.PROJECT_NUMBERS)


@with_record(RuleOptions)
def create(name: Name, *, options: RuleOptions) -> None:
    """Create a department; `carrel project update P --department NAME` puts projects into it."""
    with connected() as client:
        if any(one.name == name for one in client.list_departments()):
            raise BadSetting(f"There is a department {name} already; `carrel department update`.")
        client.put_department(name, without_nulls(options.body()))
        say(f"Department {name} created successfully.")
        tell_findings(client, name)


@with_record(RuleOptions)
def update(
    name: Name,
    *,
    options: RuleOptions,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say who would start and who would be preempted.")
    ] = False,
) -> None:
    """Change a department; what is not named stays."""
    changes = options.body()
    if not changes:
        raise typer.BadParameter("name what to change, such as --gpus 4.")
    with connected() as client:
        rules = without_nulls(_merged(_rules(_find(client, name)), changes))
        if dry_run:
            show_impact(name, client.preview_department(name, rules))
            return
        client.put_department(name, rules)
        say(f"Department {name} updated successfully.")
        tell_findings(client, name)


def delete(name: Name) -> None:
    """Remove a department that no project belongs to."""
    with connected() as client:
        client.delete_department(name)
    say(f"Department {name} deleted successfully.")


def _find(client: "Client", name: str) -> "Department":
    known = client.list_departments()
    for one in known:
        if one.name == name:
            return one
    names = ", ".join(one.name for one in known) or "none"
    raise BadSetting(f"There is no department {name}; there are {names}.")


def _rules(department: "Department") -> dict[str, Any]:
    """The fields of a department that can be set."""
    import msgspec

    found: dict[str, Any] = msgspec.to_builtins(department)
    given = ("name", "resource_version", "created_at")
    return {field: value for field, value in found.items() if field not in given}


def _merged(old: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    inner = {key: old[key] | value for key, value in changes.items() if isinstance(value, dict)}
    return old | changes | inner


def _facts(one: "Department", inside: "Sequence[Project]") -> list[tuple[str, str]]:
    from carrel.cli import cells

    return [
        ("Name", one.name),
        ("Description", one.description),
        ("Guaranteed", cells.amounts(one.quota)),
        ("Limit", cells.amounts(one.limit)),
        *groups_said(one.node_group_quotas, one.node_group_limits),
        ("Over quota", "yes" if one.over_quota else "no"),
        ("Weight", "by its quota" if one.weight is None else str(one.weight)),
        ("Rank", str(one.rank)),
        *_rules_said(one),
        ("Quota line", cells.quota_line(cells.beyond(cells.use_of(inside), one.quota), one.quota)),
    ]


def _rules_said(one: "Department") -> list[tuple[str, str]]:
    """The rules that it sets for its projects; what it leaves to the cluster is left out."""
    from carrel import wording

    found = []
    for name, label in wording.EFFECTIVE.items():
        value = attrgetter(name)(one)
        said = ", ".join(value) if isinstance(value, list) else value
        if said not in (None, ""):
            found.append((label, wording.rule_value(said)))
    return found
