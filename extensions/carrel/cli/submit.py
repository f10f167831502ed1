"""``carrel submit``: options to the API's workload. Much of ``docker run`` works as it is."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from carrel import options
from carrel.cli import requests
from carrel.cli.asked import Texts, with_options
from carrel.cli.context import Invocation, connected, project_of
from carrel.cli.output import Output, document, note, say
from carrel.errors import BadSetting
from carrel.from_here import in_workspace, start_in, unseen
from carrel.options import EVERY, Surface

NO_EFFECT = "{option} has no effect on a job that may wait; open a shell with `carrel bash {name}`."
Words = Annotated[
    Texts, typer.Argument(metavar="[NAME] [-- COMMAND...]", help="Its name; then its command.")
]


@with_options
def submit(context: typer.Context, words: Words = None, **chosen: Any) -> None:
    """Submit a job: `carrel submit train-7 -p vision -g 1 -- python train.py`."""
    name, command = _name_and_command(words or [], context)
    if name and chosen["name"]:
        raise BadSetting("The name is there twice; write it once.")
    name = name or chosen["name"] or ""
    _say_what_has_no_effect(name, chosen)
    bodies = [
        _body(written, name, command, chosen) for written in requests.load(chosen.pop("file"))
    ]
    if name and len(bodies) > 1:
        raise BadSetting(f"The file has {len(bodies)} requests; one name cannot be that of all.")
    for body in bodies:
        send(body, dry_run=bool(chosen["dry-run"]))


def _body(
    written: Mapping[str, Any], name: str, command: list[str], chosen: Mapping[str, Any]
) -> dict[str, Any]:
    """One request: what a file says, with what was typed before it."""
    kinds = [written["kind"]] if "kind" in written else [one.name for one in options.KINDS]
    before = {key: value for key, value in written.items() if key != "kind"}
    asked = options.read(chosen, Surface.CLI, kinds, written=before)
    kind, fields = EVERY[asked.kind], asked.fields
    if chosen["notebook"]:
        fields = requests.with_notebook(kind.name, fields)
    elif "notebook" in kind.sections and not fields["notebook"].get("path"):
        raise BadSetting("Which notebook? Name it: `carrel submit --notebook report.ipynb`.")
    if name:
        fields["name"] = name
        fields.pop("name_prefix", None)
    if command:
        fields["command"] = command
    if kind.command and not fields.get("command"):
        raise BadSetting(
            "What should the job run? Give the command behind `--`: "
            "`carrel submit NAME -- python train.py`."
        )
    if kind.name == "schedule" and command and "notebook" not in fields:
        fields["schedule"].setdefault("runs", "training")
    if "name" not in fields:
        fields.setdefault("name_prefix", kind.prefix)
    if in_workspace():
        if not fields.get("working_dir") and (hint := unseen(Path.cwd())):
            note(hint)
        start_in(fields, Path.cwd())
    return {"kind": kind.name, **fields}


def _say_what_has_no_effect(name: str, chosen: Mapping[str, Any]) -> None:
    if chosen["tty"]:
        note(NO_EFFECT.format(option="-it", name=name or "NAME"))
    if chosen["rm"]:
        note("--rm has no effect: a job stays listed until `carrel delete job`.")


def send(body: dict[str, Any], *, dry_run: bool) -> None:
    """Submit a request, or say what would become of it; the project may be left out."""
    with connected() as client:
        body["project"] = project_of(client, body.get("project"))
        if dry_run:
            answer = client.create_workload(body, dry_run=True)
            say(f"Nothing was submitted. {answer.forecast.sentence}".rstrip())
            document(answer.workload, Output.YAML)
            return
        job = client.create_workload(body)
    say(f"Job {job.name} submitted successfully.")
    say("You can check the status of the job by running:")
    say(f"carrel describe job {job.name} -p {job.project}")


def _name_and_command(words: list[str], context: typer.Context) -> tuple[str, list[str]]:
    """``NAME -- COMMAND``; without ``--`` everything behind the name is the command."""
    invocation: Invocation = context.obj
    if invocation.rest is None:
        name, *command = words or [""]
        return name, command
    if len(words) > 1:
        raise BadSetting(
            f"Only the job's name may stand before `--`; {' '.join(words[1:])!r} is too much."
        )
    return (words[0] if words else ""), invocation.rest


def labels(texts: Texts) -> dict[str, str]:
    """``K=V`` options as a mapping. Raises ``BadSetting``."""
    return dict(options.read({"label": texts}, Surface.CLI).fields.get("labels", {}))
