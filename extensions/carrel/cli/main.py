"""The command ``carrel``: puts the commands together and turns errors into sentences.

Exit codes: 0 done, 1 refused by the service, 2 wrong usage, 3 not signed in or nobody answers,
130 interrupted.
"""

import gc
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import typer

from carrel.cli.commands import session
from carrel.cli.common import Invocation, complain
from carrel.cli.quick import QuickCommand, QuickGroup
from carrel.cli.table import COMMANDS, GROUPS
from carrel.errors import BadSetting, CarrelError, NotSignedIn, Unreachable

if TYPE_CHECKING:
    import importlib.metadata

GROUP: Final = "carrel.commands"
OBJECTS_BETWEEN_COLLECTIONS: Final = 50_000
HELP: Final = {
    "backup": "Write users, keys, projects, history and pending work into one file.",
    "directory": "Write rules of directory groups into a file of this machine (its owner).",
    "keys": "Rotate the keys of this machine (administrators).",
    "restore": "Bring back what `carrel backup` wrote; Carrel has to be stopped.",
    "up": "Start everything on this machine: Hub, scheduler, console.",
    "user": "Manage accounts in the state folder of this machine (its owner).",
}


def add_to(app: typer.Typer) -> None:
    """Register what is announced."""
    from importlib.metadata import entry_points

    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        app.command(
            point.name,
            help=HELP.get(point.name, f"Brought by {point.value.partition('.')[0]}."),
            add_help_option=False,
            context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
            rich_help_panel="This machine",
        )(_forwarder(point))


def _forwarder(point: "importlib.metadata.EntryPoint") -> Callable[[typer.Context], None]:
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


def _load(point: "importlib.metadata.EntryPoint") -> typer.Typer:
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


REFUSED: Final = 1
USAGE: Final = 2
NO_ACCESS: Final = 3
INTERRUPTED: Final = 130


def build(first: str = "") -> typer.Typer:
    """The application; with the first word of a command line no more than that word needs.

    Typer looks at every parameter of every command that it is told of, which takes longer than most
    commands do.
    """
    app = _group("Carrel: workspaces and preemptible jobs on shared GPUs.", completion=True)
    app.callback()(session.start)
    known = first in COMMANDS or first in GROUPS
    for name, commands in COMMANDS.items():
        if first == name or not known:
            app.command(name, cls=QuickCommand)(commands()[name])
    for name, (help_text, verbs) in GROUPS.items():
        if known and first != name:
            continue
        group = _group(help_text)
        for verb, command in verbs().items():
            group.command(verb, cls=QuickCommand)(command)
        app.add_typer(group, name=name)
    if not known:
        add_to(app)
    return app


def _group(help_text: str, *, completion: bool = False) -> typer.Typer:
    return typer.Typer(
        cls=QuickGroup,
        help=help_text,
        no_args_is_help=True,
        add_completion=completion,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


def run(arguments: Sequence[str]) -> int:
    """Run one command line; returns its exit code."""
    words, rest = _split(arguments)
    if words[:1] == ["submit"]:
        from carrel.cli.commands import submit

        words = submit.translated(words)
    command = typer.main.get_command(build(words[0] if words else ""))
    try:
        code = command.main(
            words, prog_name="carrel", standalone_mode=False, obj=Invocation(rest=rest)
        )
    except (NotSignedIn, Unreachable) as error:
        complain(str(error))
        return NO_ACCESS
    except BadSetting as error:
        complain(str(error))
        return USAGE
    except CarrelError as error:
        complain(str(error))
        return REFUSED
    except typer.TyperException as error:
        _show_usage(error)
        return USAGE
    except (typer.Abort, KeyboardInterrupt):
        complain("Interrupted.")
        return INTERRUPTED
    return code if isinstance(code, int) else 0


def _split(arguments: Sequence[str]) -> tuple[list[str], list[str] | None]:
    """The words before and behind the first ``--``."""
    words = list(arguments)
    if "--" not in words:
        return words, None
    cut = words.index("--")
    return words[:cut], words[cut + 1 :]


def _show_usage(error: typer.TyperException) -> None:
    """Say in one line why a command line was refused; a group without its verb shows its help."""
    text = _what_is_wrong(error)
    if type(error).__name__ == "NoArgsIsHelpError":
        if text:  # with rich, the help was shown already
            typer.echo(text, err=True)
        return
    context = getattr(error, "ctx", None)
    where = context.command_path if context is not None else "carrel"
    end = "" if text.endswith(("?", ".")) else "."
    complain(f"{text}{end} See `{where} --help`.")


def _what_is_wrong(error: typer.TyperException) -> str:
    """The message of a usage error; for an unknown option with the nearest known one."""
    option, context = getattr(error, "option_name", ""), getattr(error, "ctx", None)
    if type(error).__name__ != "NoSuchOption" or context is None:
        return error.format_message()
    from carrel import options

    known = [row.opts[0] for row in context.command.get_params(context) if row.opts]
    return str(options.unknown(option, known))


def main() -> None:
    """Entry point of the command.

    The collector of cyclic garbage is told to run seldom: imports make many objects and no garbage,
    and looking through them again and again takes a tenth of a short command's time.
    """
    os.environ["CARREL_CHANNEL"] = "cli"
    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS)
    try:
        code = run(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:
        code = _enough()
    except SystemExit as end:  # typer's answer to a broken pipe
        code = _enough() if isinstance(end.__context__, BrokenPipeError) else REFUSED
    sys.exit(code)


def _enough() -> int:
    """The reader, such as ``head``, has seen enough: nothing more can be written."""
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115, PTH123 - until the very end
    return 0
