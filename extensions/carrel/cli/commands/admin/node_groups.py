"""``carrel nodegroup``: which nodes belong together, and whose work may go there."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from carrel import units
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
from carrel.errors import BadSetting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from carrel.client import Client
    from carrel_schema.governance.node_groups import NodeGroupOut

COLUMNS = ("GROUP", "NODES", "GPUs", "FREE", "FOR", "PROJECTS", "MEMBERS BY")
NUMBERS = ("NODES", "GPUs", "FREE")
ROLES = {"all": "", "training": "training", "interactive": "interactive"}
NONE = "none"

Name = Annotated[str, typer.Argument(metavar="GROUP", help="The group.")]
LabelsOption = Annotated[
    list[str] | None,
    typer.Option("--label", "-l", help="KEY=VALUE that its nodes have; several: all of them."),
]
NodesOption = Annotated[
    list[str] | None, typer.Option("--node", help="A node that is in it, by name.")
]
RoleOption = Annotated[
    str | None, typer.Option("--role", help="What its nodes are for: all, training or interactive.")
]
ProjectsOption = Annotated[
    list[str] | None,
    typer.Option("--project", "-p", help="A project that it is kept for; none: for all."),
]
DepartmentsOption = Annotated[
    list[str] | None,
    typer.Option("--department", help="A department that it is kept for; none: for all."),
]
DescriptionOption = Annotated[str | None, typer.Option("--description", help="For people.")]


def list_groups(*, output: OutputOption = Output.TABLE, no_headers: NoHeaders = False) -> None:
    """List groups of nodes: what is in each, and whose work may go there."""
    with connected() as client:
        found = client.list_node_groups()
    rows = (_row(one) for one in found)
    show(found, output, COLUMNS, rows, no_headers=no_headers, right=NUMBERS)


def describe(name: Name, *, output: OutputOption = Output.TABLE) -> None:
    """Show a group of nodes in full."""
    with connected() as client:
        one = _find(client, name)
    if for_programs(output):
        document(one, output)
        return
    fields(
        [
            ("Name", one.name),
            ("Description", one.description),
            ("Members by", _members(one)),
            ("For", one.role or "all work"),
            ("Projects", _whose(one)),
            ("Nodes", ", ".join(one.nodes) or "none"),
            ("GPUs", f"{units.number(one.free_gpus)} of {units.number(one.gpus)} free"),
        ]
    )


def create(
    name: Name,
    *,
    label: LabelsOption = None,
    node: NodesOption = None,
    role: RoleOption = None,
    project: ProjectsOption = None,
    department: DepartmentsOption = None,
    description: DescriptionOption = None,
) -> None:
    """Define a group of nodes by their labels or names."""
    body = _body(label, node, role, project, department, description)
    with connected() as client:
        made = client.create_node_group({"name": name, **body})
    say(f"Node group {name} created: {_inside(made)}.")


def update(
    name: Name,
    *,
    label: LabelsOption = None,
    node: NodesOption = None,
    role: RoleOption = None,
    project: ProjectsOption = None,
    department: DepartmentsOption = None,
    description: DescriptionOption = None,
) -> None:
    """Change a group of nodes; what is not named stays, and `none` empties a list."""
    changes = _body(label, node, role, project, department, description)
    if not changes:
        raise typer.BadParameter("name what to change, such as --role training.")
    with connected() as client:
        there = _find(client, name)
        if not there.defined:
            raise BadSetting(
                f"{name} is made by labels of nodes or the model of their GPUs;"
                " `carrel nodegroup create` defines it."
            )
        kept = {
            "description": there.description,
            "match_labels": there.match_labels,
            "node_names": list(there.node_names),
            "role": there.role,
            "projects": list(there.projects),
            "departments": list(there.departments),
            "expected_version": there.version,
        }
        made = client.replace_node_group(name, kept | changes)
    say(f"Node group {name} updated: {_inside(made)}.")


def delete(name: Name) -> None:
    """Remove the definition of a group; its nodes are open to all work then."""
    with connected() as client:
        client.delete_node_group(name)
    say(f"Node group {name} deleted.")


def _body(
    label: list[str] | None,
    node: list[str] | None,
    role: str | None,
    project: list[str] | None,
    department: list[str] | None,
    description: str | None,
) -> dict[str, Any]:
    """The API's fields of the options that were given."""
    if role is not None and role not in ROLES:
        raise typer.BadParameter(f"--role {role!r}: write {', '.join(ROLES)}.")
    given = {
        "description": description,
        "match_labels": None if label is None else _labels(label),
        "node_names": _names(node),
        "role": None if role is None else ROLES[role],
        "projects": _names(project),
        "departments": _names(department),
    }
    return {key: value for key, value in given.items() if value is not None}


def _labels(texts: "Sequence[str]") -> dict[str, str]:
    from carrel.cli.common import labels

    return {} if list(texts) == [NONE] else dict(labels(list(texts)))


def _names(texts: "Sequence[str] | None") -> list[str] | None:
    if not texts:
        return None
    return [] if list(texts) == [NONE] else list(texts)


def _find(client: "Client", name: str) -> "NodeGroupOut":
    known = client.list_node_groups()
    for one in known:
        if one.name == name:
            return one
    names = ", ".join(one.name for one in known) or "none"
    raise BadSetting(f"There is no node group {name}; there are {names}.")


def _row(one: "NodeGroupOut") -> list[str]:
    gpus = [units.number(one.gpus), units.number(one.free_gpus)]
    return [one.name, str(len(one.nodes)), *gpus, one.role or "all", _whose(one), _members(one)]


def _whose(one: "NodeGroupOut") -> str:
    departments = [f"department {name}" for name in one.departments]
    return ", ".join([*one.projects, *departments]) or "all"


def _members(one: "NodeGroupOut") -> str:
    if not one.defined:
        return "their own label or GPU model"
    labels = [f"{key}={value}" for key, value in sorted(one.match_labels.items())]
    return ", ".join([*labels, *one.node_names])


def _inside(one: "NodeGroupOut") -> str:
    count = "1 node" if len(one.nodes) == 1 else f"{len(one.nodes)} nodes"
    return f"{count}, {units.number(one.gpus)} GPUs"
