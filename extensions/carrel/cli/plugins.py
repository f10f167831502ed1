"""Commands that other packages bring (entry points ``carrel.commands``), loaded when they are used.

A command may be a typer application or a plain function with typer's annotations. Listing commands
imports none of them; one whose package is not installed says so in a sentence.
"""

from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Final

import typer

from carrel.cli.context import Invocation
from carrel.cli.output import complain

GROUP: Final = "carrel.commands"
HELP: Final = {
    "backup": "Write users, keys, projects, history and waiting work into one file.",
    "restore": "Bring back what `carrel backup` wrote; Carrel has to be stopped.",
    "up": "Start everything on this machine: Hub, scheduler, console.",
    "user": "Manage the people who may sign in (administrators).",
}


def add_to(app: typer.Typer) -> None:
    """Register what is announced."""
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        app.command(
            point.name,
            help=HELP.get(point.name, f"Brought by {point.value.partition('.')[0]}."),
            add_help_option=False,
            context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
            rich_help_panel="This machine",
        )(_forwarder(point))


def _forwarder(point: EntryPoint) -> Callable[[typer.Context], None]:
    def forward(context: typer.Context) -> None:
        command = _load(point)
        invocation: Invocation = context.obj
        behind = [] if invocation.rest is None else ["--", *invocation.rest]
        found = typer.main.get_command(command)
        code = found.main(
            [*context.args, *behind],
            prog_name=f"carrel {point.name}",
            standalone_mode=False,
            obj=Invocation(rest=invocation.rest),
        )
        if isinstance(code, int) and code:
            raise typer.Exit(code)

    return forward


def _load(point: EntryPoint) -> typer.Typer:
    try:
        found = point.load()
    except ModuleNotFoundError as error:
        complain(
            f"`carrel {point.name}` needs a part that is not installed here "
            f"({error.name}): pip install 'jupyter-carrel[hub]'."
        )
        raise typer.Exit(1) from None
    if isinstance(found, typer.Typer):
        return found
    wrapper = typer.Typer(add_completion=False, rich_markup_mode=None)
    wrapper.command()(found)
    return wrapper
