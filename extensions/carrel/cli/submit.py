"""``carrel submit``: options to the API's workload. Much of ``docker run`` works as it is."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from carrel.cli import asked, units
from carrel.cli.context import Invocation, connected, project_of
from carrel.cli.output import Output, document, note, say
from carrel.errors import BadSetting

NO_EFFECT = "{option} has no effect on a job that may wait; open a shell with `carrel bash {name}`."


def submit(
    context: typer.Context,
    words: asked.Words = None,
    *,
    project: asked.Project = None,
    gpus: asked.Gpus = 0,
    cpu: asked.Cpu = None,
    cpu_limit: asked.CpuLimit = None,
    memory: asked.Memory = None,
    large_shm: asked.LargeShm = False,
    environment: asked.Environment = None,
    secret: asked.Secret = None,
    volume: asked.Volume = None,
    image: asked.Image = "",
    working_dir: asked.WorkingDir = None,
    priority: asked.Priority = "",
    preemptible: asked.Preemptible = None,
    interactive: asked.Interactive = False,
    tasks: asked.Tasks = 1,
    backoff_limit: asked.BackoffLimit = 6,
    name_prefix: asked.NamePrefix = "",
    label: asked.Label = None,
    checkpoint_every: asked.CheckpointEvery = None,
    grace: asked.Grace = None,
    dry_run: asked.DryRun = False,
    tty: asked.Terminal = False,
    rm: asked.Remove = False,
) -> None:
    """Submit a job: `carrel submit train-7 -p vision -g 1 -- python train.py`."""
    name, command = _name_and_command(words or [], context)
    _say_what_has_no_effect(name, tty=tty, rm=rm)
    body: dict[str, Any] = {
        "kind": "workspace" if interactive else "training",
        "command": command,
        "gpus": gpus,
        "tasks": tasks,
        "large_shm": large_shm or None,
        "backoff_limit": backoff_limit,
        "preemptible": preemptible,
        "priority": int(priority) if priority.lstrip("-").isdigit() else priority,
        "checkpoint_every_seconds": _seconds(checkpoint_every, "--checkpoint-every"),
        "grace_seconds": _seconds(grace, "--grace-period"),
        **({"name": name} if name else {"name_prefix": name_prefix or "job"}),
        **_machine(cpu, cpu_limit, memory),
        **_surroundings(environment, secret, volume, image, working_dir, label),
    }
    _send({key: value for key, value in body.items() if value not in ("", None)}, project, dry_run)


def _say_what_has_no_effect(name: str, *, tty: bool, rm: bool) -> None:
    if tty:
        note(NO_EFFECT.format(option="-it", name=name or "NAME"))
    if rm:
        note("--rm has no effect: a job stays listed until `carrel delete job`.")


def _machine(cpu: str | None, cpu_limit: str | None, memory: str | None) -> dict[str, Any]:
    return {
        "cpu_millicores": cpu and units.cpu_millicores(cpu),
        "cpu_limit_millicores": cpu_limit and units.cpu_millicores(cpu_limit, "--cpu-limit"),
        "memory_bytes": memory and units.memory_bytes(memory),
    }


def _surroundings(
    environment: asked.Texts,
    secret: asked.Texts,
    volume: asked.Texts,
    image: str,
    working_dir: str | None,
    label: asked.Texts,
) -> dict[str, Any]:
    return {
        "environment": assignments(environment, "-e"),
        "secret_environment": assignments(secret, "--secret"),
        "volumes": [_volume(text) for text in volume or []],
        "image": image,
        "working_dir": _working_dir(working_dir),
        "labels": assignments(label, "--label", taken_along=False),
    }


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
    texts: asked.Texts,
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
