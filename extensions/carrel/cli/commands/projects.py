"""``carrel project``: what an administrator sets of a project. Only named options change."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option
from typing_extensions import override

from carrel import units
from carrel.cli.common import Output, OutputOption, connected, document, fields, for_programs, say
from carrel.cli.typer_options import with_record

if TYPE_CHECKING:
    from carrel.client import Client
    from carrel.models import ProjectImpact


NONE = "none"
WEIGHTS = {"low": 1, "medium": 2, "high": 3}
PLACEMENTS = ("pack", "spread")
USER_ORDERS = ("submission", "fair-share")
BY_GROUP = ("node_group_limits", "node_group_quotas")
Text = str | None
Whole = int | None
Switch = bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleOptions:
    """Options that projects and departments share; ``None``: not given."""

    description: Annotated[Text, Option("--description", help="What it is for.")] = None
    gpus: Annotated[
        float | None, Option("--gpus", "-g", min=0, help="Guaranteed GPUs (its quota).")
    ] = None
    cpu: Annotated[Text, Option("--cpu", help="Guaranteed processors, or none.")] = None
    memory: Annotated[Text, Option("--memory", help="Guaranteed memory: 64G, or none.")] = None
    limit_gpus: Annotated[
        Text, Option("--limit-gpus", help="Never more GPUs than this, or none.")
    ] = None
    over_quota: Annotated[
        Switch,
        Option("--over-quota/--no-over-quota", help="May it borrow what nobody uses?"),
    ] = None
    weight: Annotated[
        Text,
        Option(
            "--weight",
            help="Share of what is over: a number, low, medium or high (1, 2, 3), 0 for nothing;"
            " none: as its quota.",
        ),
    ] = None
    rank: Annotated[Whole, Option("--rank", help="Served before those of lower rank.")] = None
    preempt_min_runtime: Annotated[
        Text,
        Option(
            "--preempt-min-runtime",
            help="Work runs 30m before higher priority evicts it, or none.",
        ),
    ] = None
    reclaim_min_runtime: Annotated[
        Text,
        Option("--reclaim-min-runtime", help="Work runs 1h before others reclaim, or none."),
    ] = None
    preemption_delay: Annotated[
        Text,
        Option("--preemption-delay", help="Work waits 5m before others are evicted, or none."),
    ] = None
    reservation_delay: Annotated[
        Text,
        Option(
            "--reservation-delay", help="Large work waits 10m before it gets reservations, or none."
        ),
    ] = None
    placement: Annotated[
        Text, Option("--placement", help="Fill nodes (pack) or spread over them, or none.")
    ] = None
    training_node_groups: Annotated[
        Text,
        Option("--training-node-groups", help="Trainings run on these groups only: a,b, or none."),
    ] = None
    interactive_node_groups: Annotated[
        Text,
        Option(
            "--interactive-node-groups", help="Workspaces run on these groups only: a,b, or none."
        ),
    ] = None

    node_group_limits: Annotated[
        Text,
        Option(
            "--node-group-limits",
            help="Never more GPUs than these in a node group: a100=4,h100=none; none: no such"
            " limits.",
        ),
    ] = None

    node_group_quotas: Annotated[
        Text,
        Option(
            "--node-group-quotas",
            help="Guaranteed GPUs in a node group: a100=4,h100=none; none: no such guarantees.",
        ),
    ] = None

    def body(self) -> dict[str, Any]:
        """The API's fields of the options that were given; ``none`` takes a bound away."""
        by_group = {name: getattr(self, name) for name in BY_GROUP}
        plain = {
            "description": self.description,
            "over_quota": self.over_quota,
            "weight": _bound(self.weight, _weight),
            "rank": self.rank,
            "preempt_min_runtime_seconds": _span(self.preempt_min_runtime, "--preempt-min-runtime"),
            "reclaim_min_runtime_seconds": _span(self.reclaim_min_runtime, "--reclaim-min-runtime"),
            "preemption_delay_seconds": _span(self.preemption_delay, "--preemption-delay"),
            "reservation_delay_seconds": _span(self.reservation_delay, "--reservation-delay"),
            "placement": _bound(self.placement, _placement),
            **{
                name: _bound(text, partial(_group_amounts, name)) for name, text in by_group.items()
            },
        }
        nested = {name: _given(group) for name, group in self.groups().items()}
        return _given(plain) | {key: value for key, value in nested.items() if value}

    def groups(self) -> dict[str, dict[str, Any]]:
        """Fields that have fields; what was not given is ``None``."""
        limit = _bound(self.limit_gpus, lambda text: _number(text, "--limit-gpus", float))
        groups = {
            "training": _names(self.training_node_groups),
            "interactive": _names(self.interactive_node_groups),
        }
        return {"quota": self._quota(), "limit": {"gpus": limit}, "node_groups": groups}

    def _quota(self) -> dict[str, Any]:
        return {
            "gpus": self.gpus,
            "cpu_millicores": _bound(self.cpu, units.cpu_millicores),
            "memory_bytes": _bound(self.memory, units.memory_bytes),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectOptions(RuleOptions):
    """Options of a project; ``None``: not given."""

    department: Annotated[
        Text, Option("--department", help="The department it belongs to, or none.")
    ] = None
    max_gpus_per_user: Annotated[
        Text,
        Option("--max-gpus-per-user", help="GPUs that each user may have at a time, or none."),
    ] = None
    user_order: Annotated[
        Text,
        Option(
            "--user-order",
            help="Who of equal priority is served first: by submission, or the user who holds"
            " less (fair-share).",
        ),
    ] = None
    interactive_time_limit: Annotated[
        Text, Option("--interactive-time-limit", help="Workspaces stop after 8h, or none.")
    ] = None
    idle_timeout: Annotated[
        Text, Option("--idle-timeout", help="Unused workspaces stop after 1h, or none.")
    ] = None
    warn_before: Annotated[
        Text, Option("--warn-before", help="Tell the owner 10m before a stop.")
    ] = None
    extend: Annotated[Text, Option("--extend", help="What `keep` adds: 1h.")] = None
    max_extensions: Annotated[
        Whole, Option("--max-extensions", min=0, help="How often; 0 means never.")
    ] = None
    training_idle_timeout: Annotated[
        Text,
        Option(
            "--training-idle-timeout",
            help="Trainings whose GPUs do nothing stop after 2h, or none.",
        ),
    ] = None
    training_time_limit: Annotated[
        Text, Option("--training-time-limit", help="Trainings stop after 7d, or none.")
    ] = None
    interactive_apply_to_running: Annotated[
        Switch,
        Option(
            "--interactive-apply-to-running/--no-interactive-apply-to-running",
            help="Do changed limits also hold for workspaces that run already?",
        ),
    ] = None
    training_apply_to_running: Annotated[
        Switch,
        Option(
            "--training-apply-to-running/--no-training-apply-to-running",
            help="Do changed limits also hold for trainings that run already?",
        ),
    ] = None

    @override
    def body(self) -> dict[str, Any]:
        most = _bound(
            self.max_gpus_per_user, lambda text: _number(text, "--max-gpus-per-user", float)
        )
        order = None if self.user_order is None else _user_order(self.user_order)
        own = {
            "department": self.department,
            "max_gpus_per_user": most,
            "user_order": order,
        }
        return RuleOptions.body(self) | _given(own)

    @override
    def groups(self) -> dict[str, dict[str, Any]]:
        stay = {"interactive": self._interactive(), "training": self._training()}
        return RuleOptions.groups(self) | stay

    def _interactive(self) -> dict[str, Any]:
        return {
            "time_limit_seconds": _span(self.interactive_time_limit, "--interactive-time-limit"),
            "idle_timeout_seconds": _span(self.idle_timeout, "--idle-timeout"),
            "warn_before_seconds": _span(self.warn_before, "--warn-before"),
            "extend_seconds": _span(self.extend, "--extend"),
            "max_extensions": self.max_extensions,
            "apply_to_running": self.interactive_apply_to_running,
        }

    def _training(self) -> dict[str, Any]:
        return {
            "idle_gpu_seconds": _span(self.training_idle_timeout, "--training-idle-timeout"),
            "time_limit_seconds": _span(self.training_time_limit, "--training-time-limit"),
            "apply_to_running": self.training_apply_to_running,
        }


def without_nulls(body: dict[str, Any]) -> dict[str, Any]:
    """The body for an object whose rules are said in full: what was taken away is not there."""
    said = {name: body[name] or {} for name in BY_GROUP if name in body}
    return body | {
        name: {group: gpus for group, gpus in amounts.items() if gpus is not None}
        for name, amounts in said.items()
    }


def _span(text: str | None, option: str) -> Any:
    return _bound(text, lambda span: units.seconds(span, option))


def _given(fields: dict[str, Any]) -> dict[str, Any]:
    return {
        key: None if value == NONE else value for key, value in fields.items() if value is not None
    }


def _bound(text: str | None, read: Any) -> Any:
    return text if text in (None, NONE) else read(text)


def _names(text: str | None) -> list[str] | None:
    if text is None or text == NONE:
        return None if text is None else []
    return [name.strip() for name in text.split(",") if name.strip()]


def _group_amounts(name: str, text: str) -> dict[str, float | None]:
    from carrel_schema.text import group_amounts

    try:
        return group_amounts.read(text)
    except ValueError as error:
        raise typer.BadParameter(f"--{name.replace('_', '-')}: {error}.") from None


def _weight(text: str) -> float:
    known = WEIGHTS.get(text.lower())
    return _number(text, "--weight", int) if known is None else known


def _placement(text: str) -> str:
    if text not in PLACEMENTS:
        raise typer.BadParameter(f"--placement {text!r}: write pack, spread or none.")
    return text


def _user_order(text: str) -> str:
    if text not in USER_ORDERS:
        raise typer.BadParameter(f"--user-order {text!r}: write submission or fair-share.")
    return text


def _number(text: str, option: str, kind: type[int] | type[float]) -> float:
    try:
        return kind(text)
    except ValueError:
        raise typer.BadParameter(f"{option} {text!r} is no number; write one, or none.") from None


Name = Annotated[str, typer.Argument(metavar="PROJECT", help="The project.")]
Users = Annotated[list[str], typer.Argument(metavar="USER...", help="Who.")]


@with_record(ProjectOptions)
def create(name: Name, *, options: ProjectOptions) -> None:
    """Create a project."""
    body = without_nulls(options.body())
    with connected() as client:
        client.create_project({"name": name, **body})
        say(f"Project {name} created successfully.")
        tell_findings(client, name)


@with_record(ProjectOptions)
def update(
    names: Annotated[
        list[str], typer.Argument(metavar="PROJECT...", help="One, or several to change alike.")
    ],
    *,
    options: ProjectOptions,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say who would start and who would be preempted.")
    ] = False,
) -> None:
    """Change projects, all of them or none; what is not named stays."""
    body = options.body()
    if not body:
        raise typer.BadParameter("name what to change, such as --gpus 4.")
    said = ", ".join(names)
    with connected() as client:
        if dry_run:
            several = len(names) > 1
            show_impact(
                said,
                client.preview_projects(names, body)
                if several
                else client.update_project(names[0], body, dry_run=True),
            )
            return
        if len(names) > 1:
            client.update_projects(names, body)
        else:
            client.update_project(names[0], body)
        for name in names:
            say(f"Project {name} updated successfully.")
        tell_findings(client, *names)


def show_impact(name: str, impact: "ProjectImpact") -> None:
    """Print which work a change would start and preempt at once."""
    say(f"Nothing was changed in {name}.")
    say(f"Would start at once: {', '.join(impact.would_start) or 'no job'}")
    say(f"Would be preempted at once: {', '.join(impact.would_give_way) or 'no job'}")


def describe(name: Name, *, output: OutputOption = Output.TABLE) -> None:
    """Show a project in full: its guarantees, and each rule with where it comes from."""
    from carrel import wording
    from carrel.cli import cells

    with connected() as client:
        project = client.get_project(name)
    if for_programs(output):
        document(project, output)
        return
    fields(
        [
            ("Name", project.name),
            ("Description", project.description),
            ("Department", project.department or ""),
            ("Guaranteed", cells.amounts(project.quota)),
            ("Limit", cells.amounts(project.limit)),
            *groups_said(project.node_group_quotas, project.node_group_limits),
            ("GPUs of each user", cells.amount(project.max_gpus_per_user)),
            ("Order of users", project.user_order),
            ("Over quota", "yes" if project.over_quota else "no"),
            ("Weight", "by its quota" if project.weight is None else str(project.weight)),
            ("Rank", str(project.rank)),
            *wording.effective_rules(project),
        ]
    )


def groups_said(quotas: Mapping[str, float], limits: Mapping[str, float]) -> list[tuple[str, str]]:
    """The lines of guarantees and limits in groups of nodes, where there are any."""
    from carrel_schema.text import group_amounts

    lines = (("Guaranteed in node groups", quotas), ("Limit in node groups", limits))
    return [(label, group_amounts.spell(amounts)) for label, amounts in lines if amounts]


def check(*, output: OutputOption = Output.TABLE) -> None:
    """Say what does not fit together in the quotas and limits of projects and departments."""
    with connected() as client:
        found = client.quota_findings()
    if for_programs(output):
        document(found, output)
        return
    for finding in found:
        say(f"{finding.severity.capitalize()}: {finding.sentence}")
    if not found:
        say("All guarantees can be kept at the same time, and every limit and weight counts.")


def tell_findings(client: "Client", *names: str) -> None:
    """Print the findings about changed projects or departments, or about the whole."""
    for finding in client.quota_findings():
        if finding.name in ("", *names):
            say(f"{finding.severity.capitalize()}: {finding.sentence}")


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
