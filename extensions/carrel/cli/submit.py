"""``carrel submit``: options to the API's workload. Much of ``docker run`` works as it is."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from carrel.cli import units
from carrel.cli.context import Invocation, connected, project_of
from carrel.cli.output import Output, document, note, say
from carrel.errors import BadSetting

Texts = list[str] | None
NO_EFFECT = "{option} has no effect on a job that may wait; open a shell with `carrel bash {name}`."


def submit(
    context: typer.Context,
    words: Annotated[
        Texts, typer.Argument(metavar="[NAME] [-- COMMAND...]", help="Its name; then its command.")
    ] = None,
    *,
    project: Annotated[str | None, typer.Option("--project", "-p", help="The project.")] = None,
    gpus: Annotated[float, typer.Option("--gpus", "--gpu", "-g", help="GPUs of each task.")] = 0,
    cpu: Annotated[
        str | None, typer.Option("--cpu", help="Its share of a busy machine: 2, 0.5 or 500m.")
    ] = None,
    cpu_limit: Annotated[
        str | None, typer.Option("--cpu-limit", help="Never more processors than this.")
    ] = None,
    memory: Annotated[str | None, typer.Option("--memory", help="Memory: 512M, 4G.")] = None,
    environment: Annotated[
        Texts, typer.Option("--environment", "-e", help="K=V, or K to take yours along.")
    ] = None,
    secret: Annotated[
        Texts, typer.Option("--secret", help="K=V or K, never shown again anywhere.")
    ] = None,
    volume: Annotated[
        Texts, typer.Option("--volume", "-v", help="SOURCE[:DESTINATION], a folder to see.")
    ] = None,
    image: Annotated[str, typer.Option("--image", "-i", help="Container image.")] = "",
    working_dir: Annotated[
        str | None,
        typer.Option("--working-dir", "-w", help="By default the present one in a workspace."),
    ] = None,
    priority: Annotated[
        str, typer.Option("--priority", help="A level such as low or high, or a number.")
    ] = "",
    preemptible: Annotated[
        bool | None,
        typer.Option(
            "--preemptible/--non-preemptible",
            help="May it give way to others? Trainings may, interactive work may not, by default.",
        ),
    ] = None,
    interactive: Annotated[
        bool, typer.Option("--interactive", help="A session for a person, not a training.")
    ] = False,
    tasks: Annotated[int, typer.Option("--tasks", help="Start so many together.")] = 1,
    backoff_limit: Annotated[
        int, typer.Option("--backoff-limit", help="How often to start it again when it fails.")
    ] = 6,
    name_prefix: Annotated[
        str, typer.Option("--name-prefix", "--job-name-prefix", help="Number it: PREFIX-1, ...")
    ] = "",
    label: Annotated[Texts, typer.Option("--label", "-l", help="K=V, to find it by.")] = None,
    checkpoint_every: Annotated[
        str | None, typer.Option("--checkpoint-every", help="How often it should save: 30, 5m.")
    ] = None,
    grace: Annotated[
        str | None, typer.Option("--grace-period", help="Time to save when it must stop: 30s.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would happen and do nothing.")
    ] = False,
    large_shm: Annotated[
        bool,
        typer.Option("--large-shm", help="Tasks share this machine's memory files already."),
    ] = False,
    tty: Annotated[bool, typer.Option("--tty", "--stdin", "-t", "-it", hidden=True)] = False,
    rm: Annotated[bool, typer.Option("--rm", hidden=True)] = False,
) -> None:
    """Submit a job: `carrel submit train-7 -p vision -g 1 -- python train.py`."""
    del large_shm  # accepted so that lines written for containers work as they are
    name, command = _name_and_command(words or [], context)
    if tty:
        note(NO_EFFECT.format(option="-it", name=name or "NAME"))
    if rm:
        note("--rm has no effect: a job stays listed until `carrel delete job`.")
    body: dict[str, Any] = {
        "kind": "workspace" if interactive else "training",
        "command": command,
        "environment": assignments(environment, "-e"),
        "secret_environment": assignments(secret, "--secret"),
        "volumes": [_volume(text) for text in volume or []],
        "image": image,
        "gpus": gpus,
        "cpu_millicores": cpu and units.cpu_millicores(cpu),
        "cpu_limit_millicores": cpu_limit and units.cpu_millicores(cpu_limit, "--cpu-limit"),
        "memory_bytes": memory and units.memory_bytes(memory),
        "tasks": tasks,
        "backoff_limit": backoff_limit,
        "working_dir": _working_dir(working_dir),
        "labels": assignments(label, "--label", taken_along=False),
        "preemptible": preemptible,
        "priority": int(priority) if priority.lstrip("-").isdigit() else priority,
        "checkpoint_every_seconds": _seconds(checkpoint_every, "--checkpoint-every"),
        "grace_seconds": _seconds(grace, "--grace-period"),
        **({"name": name} if name else {"name_prefix": name_prefix or "job"}),
    }
    _send({key: value for key, value in body.items() if value not in ("", None)}, project, dry_run)


def _send(body: dict[str, Any], project: str | None, dry_run: bool) -> None:
    with connected() as client:
        body["project"] = project_of(client, project)
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
    elif len(words) > 1:
        raise BadSetting(
            f"Only the job's name may stand before `--`; {' '.join(words[1:])!r} is too much."
        )
    else:
        name, command = (words[0] if words else ""), invocation.rest
    if not command:
        raise BadSetting(
            "What should the job run? Give the command behind `--`: "
            "`carrel submit NAME -- python train.py`."
        )
    return name, command


def assignments(
    texts: Texts,
    option: str,
    *,
    taken_along: bool = True,
    environ: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """``K=V`` options as a mapping; a bare ``K`` takes the present value along."""
    own = os.environ if environ is None else environ
    found: dict[str, str] = {}
    for text in texts or []:
        name, equals, value = text.partition("=")
        if not name or not (equals or taken_along):
            raise BadSetting(f"{option} {text!r} should be NAME=VALUE.")
        if equals:
            found[name] = value
        elif name in own:
            found[name] = own[name]
        else:
            raise BadSetting(f"{option} {name}: there is no such variable here to take along.")
    return found


def _volume(text: str) -> dict[str, str]:
    source, _, destination = text.partition(":")
    destination, _, mode = destination.partition(":")
    if not source or mode not in ("", "rw"):
        raise BadSetting(f"-v {text!r} should be SOURCE or SOURCE:DESTINATION.")
    full = str(Path(source).expanduser().absolute())
    return {"source": full, "destination": destination or full}


def _working_dir(named: str | None) -> str:
    """In a workspace the present folder, which jobs there share; elsewhere the job's own."""
    if named is not None:
        return named
    return str(Path.cwd()) if "JUPYTERHUB_API_TOKEN" in os.environ else ""


def _seconds(text: str | None, option: str) -> float | None:
    return None if text is None else units.seconds(text, option)
