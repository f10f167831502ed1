"""``carrel directory``: what groups of the directory may do here, for the state folder's owner."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from carrel_hub.directory.group_rules import GroupRule, GroupRuleError, GroupRules
from carrel_hub.sign_in import GROUPS_FILE
from carrel_hub.state_folder import default_state_dir

app = typer.Typer(
    no_args_is_help=True,
    help="What groups of the directory may do here (see `carrel up --sign-in`).",
)
StateDir = Annotated[Path | None, typer.Option(help="The state folder of `carrel up`.")]
Group = Annotated[str, typer.Argument(help="Name of the group, as the directory spells it.")]


@app.command("set")
def set_(
    group: Group,
    project: Annotated[
        list[str] | None, typer.Option("--project", "-p", help="Its members use this project.")
    ] = None,
    admin: Annotated[bool, typer.Option("--admin", help="Its members manage everything.")] = False,
    state_dir: StateDir = None,
) -> None:
    """Replace the projects and roles that a directory group brings."""
    with _told():
        _rules(state_dir).put(GroupRule(group=group, projects=project or [], admin=admin))
    typer.echo(f"Members of {group} {_may(project or [], admin=admin)}, within some minutes.")


@app.command()
def remove(group: Group, state_dir: StateDir = None) -> None:
    """Take from the members of a group what its rule gave them, within some minutes."""
    with _told():
        _rules(state_dir).remove(group)


@app.command("list")
def list_(state_dir: StateDir = None) -> None:
    """Show the rules."""
    with _told():
        found = _rules(state_dir).all()
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, padding=(0, 2), header_style="dim")
    table.add_column("group")
    table.add_column("its members")
    for rule in found:
        table.add_row(rule.group, _may(rule.projects, admin=rule.admin))
    Console(highlight=False).print(table)


def _may(projects: list[str], *, admin: bool) -> str:
    parts = [f"use {name}" for name in projects]
    if admin:
        parts.append("manage everything")
    return ", ".join(parts) or "may sign in"


def _rules(state_dir: Path | None) -> GroupRules:
    folder = (state_dir or default_state_dir()).expanduser().absolute()
    if not (folder / "hub").is_dir():
        raise GroupRuleError(f"There is no Carrel in {folder} yet: start it once with carrel up.")
    return GroupRules(folder / "hub" / GROUPS_FILE)


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """Show an error as a sentence."""
    try:
        yield
    except (GroupRuleError, OSError) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None
