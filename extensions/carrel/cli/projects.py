"""``carrel project``: what an administrator sets. Only named options change anything."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from carrel.cli import units
from carrel.cli.context import connected
from carrel.cli.output import say

if TYPE_CHECKING:
    from carrel.models import ProjectImpact

NONE = "none"
_INTERACTIVE = {
    "time_limit_seconds": "--interactive-time-limit",
    "idle_timeout_seconds": "--idle-timeout",
    "warn_before_seconds": "--warn-before",
    "extend_seconds": "--extend",
}
_TRAINING = {
    "idle_gpu_seconds": "--training-idle-timeout",
    "time_limit_seconds": "--training-time-limit",
}
Name = Annotated[str, typer.Argument(metavar="PROJECT", help="The project.")]
Description = Annotated[str | None, typer.Option("--description", help="What it is for.")]
Gpus = Annotated[
    float | None, typer.Option("--gpus", "-g", min=0, help="Guaranteed GPUs (its quota).")
]
Cpu = Annotated[str | None, typer.Option("--cpu", help="Guaranteed processors, or none.")]
Memory = Annotated[str | None, typer.Option("--memory", help="Guaranteed memory: 64G, or none.")]
LimitGpus = Annotated[
    str | None, typer.Option("--limit-gpus", help="Never more GPUs than this, or none.")
]
OverQuota = Annotated[
    bool | None,
    typer.Option("--over-quota/--no-over-quota", help="May it borrow what nobody uses?"),
]
Weight = Annotated[
    str | None, typer.Option("--weight", help="Share of what is over; none: as its quota.")
]
Rank = Annotated[int | None, typer.Option("--rank", help="Served before projects of lower rank.")]
TimeLimit = Annotated[
    str | None, typer.Option("--interactive-time-limit", help="Workspaces stop after 8h, or none.")
]
IdleTimeout = Annotated[
    str | None, typer.Option("--idle-timeout", help="Unused workspaces stop after 1h, or none.")
]
WarnBefore = Annotated[
    str | None, typer.Option("--warn-before", help="Tell the owner 10m before a stop.")
]
Extend = Annotated[str | None, typer.Option("--extend", help="What `keep` adds: 1h.")]
MaxExtensions = Annotated[
    int | None, typer.Option("--max-extensions", min=0, help="How often; 0 means never.")
]

TrainingIdle = Annotated[
    str | None,
    typer.Option(
        "--training-idle-timeout", help="Trainings whose GPUs do nothing stop after 2h, or none."
    ),
]
TrainingTime = Annotated[
    str | None, typer.Option("--training-time-limit", help="Trainings stop after 7d, or none.")
]
InteractiveRunning = Annotated[
    bool | None,
    typer.Option(
        "--interactive-apply-to-running/--no-interactive-apply-to-running",
        help="Do changed limits also hold for workspaces that run already?",
    ),
]
TrainingRunning = Annotated[
    bool | None,
    typer.Option(
        "--training-apply-to-running/--no-training-apply-to-running",
        help="Do changed limits also hold for trainings that run already?",
    ),
]


def create(
    name: Name,
    *,
    description: Description = None,
    gpus: Gpus = None,
    cpu: Cpu = None,
    memory: Memory = None,
    limit_gpus: LimitGpus = None,
    over_quota: OverQuota = None,
    weight: Weight = None,
    rank: Rank = None,
    interactive_time_limit: TimeLimit = None,
    idle_timeout: IdleTimeout = None,
    warn_before: WarnBefore = None,
    extend: Extend = None,
    max_extensions: MaxExtensions = None,
    training_idle_timeout: TrainingIdle = None,
    training_time_limit: TrainingTime = None,
    interactive_apply_to_running: InteractiveRunning = None,
    training_apply_to_running: TrainingRunning = None,
) -> None:
    """Create a project."""
    body = _body(
        {"description": description, "over_quota": over_quota, "weight": weight, "rank": rank},
        {"gpus": gpus, "cpu": cpu, "memory": memory, "limit": limit_gpus},
        _spans(_INTERACTIVE, (interactive_time_limit, idle_timeout, warn_before, extend))
        | {"max_extensions": max_extensions, "apply_to_running": interactive_apply_to_running},
        _spans(_TRAINING, (training_idle_timeout, training_time_limit))
        | {"apply_to_running": training_apply_to_running},
    )
    with connected() as client:
        client.create_project({"name": name, **body})
    say(f"Project {name} created successfully.")


def update(
    name: Name,
    *,
    description: Description = None,
    gpus: Gpus = None,
    cpu: Cpu = None,
    memory: Memory = None,
    limit_gpus: LimitGpus = None,
    over_quota: OverQuota = None,
    weight: Weight = None,
    rank: Rank = None,
    interactive_time_limit: TimeLimit = None,
    idle_timeout: IdleTimeout = None,
    warn_before: WarnBefore = None,
    extend: Extend = None,
    max_extensions: MaxExtensions = None,
    training_idle_timeout: TrainingIdle = None,
    training_time_limit: TrainingTime = None,
    interactive_apply_to_running: InteractiveRunning = None,
    training_apply_to_running: TrainingRunning = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say who would start and who would give way.")
    ] = False,
) -> None:
    """Change a project; what is not named stays."""
    body = _body(
        {"description": description, "over_quota": over_quota, "weight": weight, "rank": rank},
        {"gpus": gpus, "cpu": cpu, "memory": memory, "limit": limit_gpus},
        _spans(_INTERACTIVE, (interactive_time_limit, idle_timeout, warn_before, extend))
        | {"max_extensions": max_extensions, "apply_to_running": interactive_apply_to_running},
        _spans(_TRAINING, (training_idle_timeout, training_time_limit))
        | {"apply_to_running": training_apply_to_running},
    )
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


def add_user(
    name: Name, users: Annotated[list[str], typer.Argument(metavar="USER...", help="Who.")]
) -> None:
    """Let users into a project."""
    with connected() as client:
        for user in users:
            client.add_member(name, user)
            say(f"User {user} added to project {name} successfully.")


def remove_user(
    name: Name, users: Annotated[list[str], typer.Argument(metavar="USER...", help="Who.")]
) -> None:
    """Take users out of a project."""
    with connected() as client:
        for user in users:
            client.remove_member(name, user)
            say(f"User {user} removed from project {name} successfully.")


def _body(
    plain: dict[str, Any],
    amounts: dict[str, Any],
    interactive: dict[str, Any],
    training: dict[str, Any],
) -> dict[str, Any]:
    """The API's fields of the options that were given; ``none`` takes a bound away."""
    quota = {
        "gpus": amounts["gpus"],
        "cpu_millicores": _bound(amounts["cpu"], units.cpu_millicores),
        "memory_bytes": _bound(amounts["memory"], units.memory_bytes),
    }
    plain["weight"] = _bound(plain["weight"], lambda text: _number(text, "--weight", int))
    limit = {"gpus": _bound(amounts["limit"], lambda text: _number(text, "--limit-gpus", float))}
    groups = {"quota": quota, "limit": limit, "interactive": interactive, "training": training}
    nested = {name: _given(group) for name, group in groups.items()}
    return _given(plain) | {key: value for key, value in nested.items() if value}


def _spans(options: dict[str, str], texts: tuple[str | None, ...]) -> dict[str, Any]:
    """Durations under the API's names; ``options`` gives the option of each."""
    return {
        key: _bound(text, lambda span, option=option: units.seconds(span, option))
        for (key, option), text in zip(options.items(), texts, strict=True)
    }


def _given(fields: dict[str, Any]) -> dict[str, Any]:
    return {
        key: None if value == NONE else value for key, value in fields.items() if value is not None
    }


def _bound(text: str | None, read: Any) -> Any:
    return text if text in (None, NONE) else read(text)


def _number(text: str, option: str, kind: type[int] | type[float]) -> float:
    try:
        return kind(text)
    except ValueError:
        raise typer.BadParameter(f"{option} {text!r} is no number; write one, or none.") from None
