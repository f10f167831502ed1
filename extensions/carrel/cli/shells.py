"""``carrel bash`` and ``carrel exec``: a terminal beside a running job."""

from typing import Annotated

import typer

from carrel.cli.context import Invocation, connected, project_of
from carrel.cli.output import ProjectOption
from carrel.errors import BadSetting

TaskOption = Annotated[
    int, typer.Option("--task", "--pod", min=0, help="Beside which task, from 0.")
]


def bash(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The job.")],
    *,
    project: ProjectOption = None,
    task: TaskOption = 0,
) -> None:
    """Open a shell beside a running job."""
    _attach(project, name, ["bash"], task)


def exec_command(
    context: typer.Context,
    words: Annotated[
        list[str], typer.Argument(metavar="NAME -- COMMAND...", help="The job; then the command.")
    ],
    *,
    project: ProjectOption = None,
    task: TaskOption = 0,
    tty: Annotated[bool, typer.Option("--tty", "--stdin", "-t", "-i", "-it", hidden=True)] = False,
) -> None:
    """Run a command beside a running job: `carrel exec NAME -- nvidia-smi`."""
    del tty  # there always is a terminal
    invocation: Invocation = context.obj
    name, *command = words
    command += invocation.rest or []
    if not command:
        raise BadSetting(f"Which command? `carrel exec {name} -- nvidia-smi`.")
    _attach(project, name, command, task)


def _attach(project: str | None, name: str, command: list[str], task: int) -> None:
    from carrel.cli import attach

    with connected() as client:
        terminal = client.exec(project_of(client, project), name, command, index=task)
        code = attach.attach(client.loop, terminal)
    raise typer.Exit(code)
