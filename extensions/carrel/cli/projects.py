"""``carrel project``: what an administrator sets. Only named options change anything."""

from typing import TYPE_CHECKING, Annotated

import typer

from carrel.cli.context import connected
from carrel.cli.output import say
from carrel.cli.project_options import ProjectOptions
from carrel.cli.shared_options import sharing

if TYPE_CHECKING:
    from carrel.models import ProjectImpact

Name = Annotated[str, typer.Argument(metavar="PROJECT", help="The project.")]
Users = Annotated[list[str], typer.Argument(metavar="USER...", help="Who.")]


@sharing(ProjectOptions)
def create(name: Name, *, options: ProjectOptions) -> None:
    """Create a project."""
    body = options.body()
    with connected() as client:
        client.create_project({"name": name, **body})
    say(f"Project {name} created successfully.")


@sharing(ProjectOptions)
def update(
    name: Name,
    *,
    options: ProjectOptions,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say who would start and who would give way.")
    ] = False,
) -> None:
    """Change a project; what is not named stays."""
    body = options.body()
    if not body:
        raise typer.BadParameter("name what to change, such as --gpus 4.")
    with connected() as client:
        if dry_run:
            _impact(name, client.update_project(name, body, dry_run=True))
            return
        client.update_project(name, body)
    say(f"Project {name} updated successfully.")


def _impact(name: str, impact: "ProjectImpact") -> None:
    say(f"Nothing was changed in {name}.")
    say(f"Would start at once: {', '.join(impact.would_start) or 'no job'}")
    say(f"Would give way at once: {', '.join(impact.would_give_way) or 'no job'}")


def delete(name: Name) -> None:
    """Remove a project that has no jobs."""
    with connected() as client:
        client.delete_project(name)
    say(f"Project {name} deleted successfully.")


def add_user(name: Name, users: Users) -> None:
    """Let users into a project."""
    with connected() as client:
        for user in users:
            client.add_member(name, user)
            say(f"User {user} added to project {name} successfully.")


def remove_user(name: Name, users: Users) -> None:
    """Take users out of a project."""
    with connected() as client:
        for user in users:
            client.remove_member(name, user)
            say(f"User {user} removed from project {name} successfully.")
