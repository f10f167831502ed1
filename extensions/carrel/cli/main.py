"""The command ``carrel``: puts the commands together and turns errors into sentences.

Exit codes: 0 done, 1 refused by the service, 2 wrong usage, 3 not signed in or nobody answers,
130 interrupted.
"""

import gc
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import typer

from carrel import options
from carrel.cli.commands import (
    cluster,
    departments,
    ending,
    endpoints,
    experiments,
    jobs,
    nodes,
    notebooks,
    projects,
    session,
    submit,
    terminal,
    workspaces,
)
from carrel.cli.commands import submit as submission
from carrel.cli.commands.admin import (
    access,
    alerts,
    assets,
    audit,
    budgets,
    people,
    policies,
    prices,
    samples,
    secrets,
    service_accounts,
    templates,
)
from carrel.cli.common import Invocation, complain
from carrel.cli.storage import files, models
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

Command = Callable[..., None]
COMMANDS: Final[Mapping[str, Command]] = {
    "login": session.login,
    "logout": session.logout,
    "whoami": session.whoami,
    "submit": submission.submit,
    "logs": jobs.logs,
    "bash": terminal.bash,
    "exec": terminal.exec_command,
    "cp": files.cp,
    "port-forward": files.port_forward,
    "artifacts": files.artifacts,
    "checkpoints": files.checkpoints,
    "suspend": jobs.suspend,
    "resume": jobs.resume,
    "run-notebook": notebooks.run_notebook,
    "fetch": notebooks.fetch,
    "schedule": notebooks.schedule,
    "tensorboard": notebooks.tensorboard,
    "endpoints": endpoints.list_endpoints,
    "call": endpoints.call,
    "share": endpoints.share,
    "queue": cluster.queue,
    "usage": cluster.usage,
    "history": samples.history,
    "wait": ending.wait,
    "password": people.password,
    "rerun": ending.rerun,
    "update": ending.update,
    "prune": ending.prune,
    "version": session.version,
}
GROUPS: Final[Mapping[str, tuple[str, Mapping[str, Command]]]] = {
    "list": (
        "List jobs, projects or nodes.",
        {
            "jobs": jobs.list_jobs,
            "projects": cluster.list_projects,
            "nodes": cluster.list_nodes,
            "faults": cluster.list_faults,
            "templates": templates.list_templates,
        },
    ),
    "describe": (
        "Show one thing in full.",
        {"job": jobs.describe_job, "node": nodes.describe},
    ),
    "node": (
        "Look after nodes.",
        {"uncordon": nodes.uncordon, "groups": nodes.list_groups},
    ),
    "delete": ("Remove things.", {"job": jobs.delete_job}),
    "config": ("Set defaults.", {"project": session.config_project}),
    "top": (
        "Show how busy things are.",
        {"node": cluster.top_node, "job": cluster.top_job},
    ),
    "experiment": (
        "Look into searches for hyperparameters.",
        {
            "list": experiments.list_experiments,
            "trials": experiments.trials,
            "log": experiments.log,
            "best": experiments.best,
            "export": experiments.export,
        },
    ),
    "workspace": (
        "Look after your workspaces.",
        {
            "list": workspaces.list_workspaces,
            "describe": workspaces.describe,
            "create": workspaces.create,
            "start": workspaces.start,
            "stop": workspaces.stop,
            "clone": workspaces.clone,
            "delete": workspaces.delete,
        },
    ),
    "model": (
        "Keep versions of models, of the runs that made them.",
        {
            "register": models.register,
            "list": models.list_models,
            "describe": models.describe,
            "delete": models.delete,
            "download": models.download,
        },
    ),
    "people": (
        "Look after the people who may sign in (administrators).",
        {
            "list": people.list_people,
            "describe": people.describe,
            "invite": people.invite,
            "revoke-invitation": people.revoke_invitation,
            "disable": people.disable,
            "enable": people.enable,
            "end-sessions": people.end_sessions,
            "update": people.update,
            "delete": people.delete,
        },
    ),
    "group": (
        "Say what groups of the directory are here (administrators).",
        {
            "list": people.list_groups,
            "map": people.map_group,
            "unmap": people.unmap_group,
        },
    ),
    "audit": (
        "See who changed what (administrators).",
        {
            "list": audit.list_entries,
            "verify": audit.verify,
            "export": audit.export,
            "settings": audit.settings,
        },
    ),
    "policy": (
        "Set rules for the fields of submitted work (administrators).",
        {
            "list": policies.list_policies,
            "describe": policies.describe,
            "apply": policies.apply,
            "delete": policies.delete,
            "effective": policies.effective,
        },
    ),
    "template": (
        "Keep values for submissions under a name.",
        {
            "list": templates.list_templates,
            "describe": templates.describe,
            "apply": templates.apply,
            "delete": templates.delete,
        },
    ),
    "prices": (
        "Say what work costs.",
        {"show": prices.show_prices, "set": prices.set_prices},
    ),
    "secret": (
        "Keep values that work gets by name.",
        {
            "list": secrets.list_secrets,
            "create": secrets.create,
            "delete": secrets.delete,
        },
    ),
    "budget": (
        "Say how many GPU-hours may be used.",
        {
            "list": budgets.list_budgets,
            "set": budgets.set_budget,
            "delete": budgets.delete_budget,
        },
    ),
    "asset": (
        "Keep environments, compute resources and data sources under names.",
        {
            "list": assets.list_assets,
            "describe": assets.describe,
            "apply": assets.apply,
            "delete": assets.delete,
        },
    ),
    "alert": (
        "See what needs attention, and say who is told.",
        {
            "list": alerts.list_alerts,
            "rules": alerts.rules,
            "set-rule": alerts.set_rule,
            "silence": alerts.silence,
            "silences": alerts.silences,
            "unsilence": alerts.unsilence,
            "channels": alerts.channels,
            "set-channel": alerts.set_channel,
            "test-channel": alerts.try_channel,
            "delete-channel": alerts.delete_channel,
        },
    ),
    "service-account": (
        "Make callers for programs, such as pipelines.",
        {
            "list": service_accounts.list_accounts,
            "create": service_accounts.create,
            "token": service_accounts.token,
            "revoke": service_accounts.revoke,
            "delete": service_accounts.delete,
        },
    ),
    "role": (
        "Show what roles let people do.",
        {"list": access.list_roles, "describe": access.describe_role},
    ),
    "access": (
        "Say who may do what, where.",
        {
            "list": access.list_rules,
            "grant": access.grant,
            "revoke": access.revoke,
            "can-i": access.can_i,
        },
    ),
    "department": (
        "Manage departments (administrators).",
        {
            "list": departments.list_departments,
            "describe": departments.describe,
            "create": departments.create,
            "update": departments.update,
            "delete": departments.delete,
        },
    ),
    "project": (
        "Manage projects (administrators).",
        {
            "create": projects.create,
            "update": projects.update,
            "delete": projects.delete,
            "check": projects.check,
            "list": cluster.list_projects,
            "describe": projects.describe,
            "add-user": projects.add_user,
            "remove-user": projects.remove_user,
        },
    ),
}


def build(first: str = "") -> typer.Typer:
    """The application; with the first word of a command line no more than that word needs.

    Typer looks at every parameter of every command that it is told of, which takes longer than most
    commands do.
    """
    app = _group("Carrel: workspaces and preemptible jobs on shared GPUs.", completion=True)
    app.callback()(session.start)
    known = first in COMMANDS or first in GROUPS
    for name, command in COMMANDS.items():
        if first == name or not known:
            app.command(name)(command)
    for name, (help_text, verbs) in GROUPS.items():
        if known and first != name:
            continue
        group = _group(help_text)
        for verb, command in verbs.items():
            group.command(verb)(command)
        app.add_typer(group, name=name)
    if not known:
        add_to(app)
    return app


def _group(help_text: str, *, completion: bool = False) -> typer.Typer:
    return typer.Typer(
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
    """What was wrong with the words, in a line; a group without its verb shows its help."""
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
