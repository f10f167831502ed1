"""The start form: its choices, what is free now, and what each project has left.

Rendered on the server from the scheduler's answers; when it does not answer, the form says so and
still lets one try.
"""

import asyncio
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from carrel import wording
from carrel.client import AsyncClient
from carrel.errors import CarrelError
from carrel.models import Node, Project, Workload
from carrel_schema.governance.assets import AssetOut
from carrel_schema.governance.policies import Bound, EffectivePolicy, EffectiveRule
from carrel_spawner import rendering
from carrel_spawner.choices.assets import offered
from carrel_spawner.choices.option_checks import check
from carrel_spawner.options import BadOption, WorkspaceChoice, WorkspaceChoices


@dataclass(frozen=True, slots=True)
class Supply:
    """The scheduler's answer about the cluster; empty when there was none."""

    projects: Sequence[Project] = ()
    nodes: Sequence[Node] = ()
    rules: Mapping[str, EffectivePolicy] = field(default_factory=dict)
    """The rules of policies for workspaces, by project."""
    assets: Sequence[AssetOut] = ()
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class ProjectLine:
    """A project with its quota in words."""

    name: str
    line: str
    rules: Sequence[str] = ()
    """The bounds of its workspaces, in words: the guarantee, limits of time, policies."""


@dataclass(frozen=True, slots=True)
class QueuePosition:
    """A place in the queue."""

    place: int | None
    sentence: str


async def ask(client: AsyncClient, membership: Sequence[str]) -> Supply:
    """Projects, nodes and rules now; trouble is part of the answer, not an error."""
    try:
        projects, nodes, found = await asyncio.gather(
            client.list_projects(), client.nodes(), client.list_assets()
        )
        rules = await asyncio.gather(
            *(client.effective_policy(name, "workspace") for name in membership)
        )
        return Supply(projects, nodes, {one.project: one for one in rules}, found)
    except CarrelError as error:
        return Supply(trouble=f"What is free now cannot be shown: {error}")


def render(
    user: str,
    membership: Sequence[str],
    supply: Supply,
    *,
    last: Mapping[str, Any],
    offer: WorkspaceChoices,
    waiting: Workload | None = None,
    queue_url: str = "",
) -> str:
    """The form's fields as HTML; ``last`` are the options of the previous start."""
    known = {project.name: project for project in supply.projects}
    lines = [
        ProjectLine(
            name,
            quota_line(known.get(name)),
            [*bounds_said(known.get(name)), *rules_said(supply.rules.get(name))],
        )
        for name in membership
    ]
    return rendering.render(
        "form.html",
        user=user,
        trouble=supply.trouble,
        queued=place(waiting),
        queue_url=queue_url,
        projects=lines,
        chosen=_chosen(last, membership, offer, known),
        most=offer.most,
        most_gpus=_most_gpus(supply, offer, [known.get(name) for name in membership]),
        profiles=offer.profiles,
        folders=offer.folders,
        assets=offered(
            supply.assets, [one for one in supply.projects if one.name in membership], user, offer
        ),
        free_gpus=free_gpus(supply.nodes, supply.projects),
        free_cpu=_free_cpu(supply.nodes),
        free_memory=_free_memory(supply.nodes),
    )


def place(waiting: Workload | None) -> QueuePosition | None:
    """The position of a queued workspace."""
    if waiting is None:
        return None
    reason = waiting.status.reason
    return QueuePosition(waiting.status.queue_position, reason.sentence if reason else "")


def quota_line(project: Project | None) -> str:
    """``1 of 2 guaranteed GPUs in use · 1 borrowed · 3 pending``."""
    if project is None:
        return "its use is not known right now"
    use, quota = project.use, project.quota.gpus
    own = _own_use(project)
    if quota is None:
        parts = [f"{own:g} GPUs in use, no quota"]
    else:
        left = max(0.0, quota - own)
        parts = [f"{own:g} of {quota:g} guaranteed GPUs in use, {left:g} left"]
    if use.gpus_borrowed:
        parts.append(f"{use.gpus_borrowed:g} borrowed")
    if use.gpus_waiting:
        parts.append(f"{use.gpus_waiting:g} pending")
    return " · ".join(parts)


def bounds_said(project: Project | None) -> list[str]:
    """The size that the project's workspaces may have, and when they are stopped, in sentences."""
    if project is None:
        return []
    found = []
    quota = project.quota.gpus
    if quota is not None:
        left = max(0.0, quota - _own_use(project))
        now = f"A workspace may start with {_gpus_up_to(left)} now"
        found.append(f"{now}: it is never preempted, so it stays within the guarantee.")
    limits = project.interactive
    if limits.time_limit_seconds is not None:
        found.append(f"It is stopped after {wording.duration(limits.time_limit_seconds)}.")
    if limits.idle_timeout_seconds is not None:
        idle = wording.duration(limits.idle_timeout_seconds)
        found.append(f"It is stopped when nobody has used it for {idle}.")
    return found


def _own_use(project: Project) -> float:
    """GPUs in use inside the guarantee."""
    return project.use.gpus_allocated - project.use.gpus_borrowed


def _gpus_up_to(count: float) -> str:
    return "no GPU" if count == 0 else f"up to {wording.gpus(count)}"


def rules_said(policy: EffectivePolicy | None) -> list[str]:
    """The rules of policies for the sizes that the form offers, one sentence for each bound."""
    found: list[str] = []
    for path, words in _AMOUNTS.items():
        rule = policy.rules.get(path) if policy is not None else None
        if rule is None:
            continue
        bounds = (("exactly", rule.locked),) if rule.locked else _bounds(rule)
        for how, bound in bounds:
            if bound is not None:
                told = f" {bound.message.rstrip('.')}." if bound.message else ""
                found.append(f"{how} {words(bound.value)}, says {bound.said_by}.{told}")
    for path, what in _ASSETS.items():
        rule = policy.rules.get(path) if policy is not None else None
        if rule is not None:
            found += _asset_rules(rule, what)
    return [text[:1].upper() + text[1:] for text in found]


def _asset_rules(rule: EffectiveRule, what: str) -> Iterator[str]:
    """The rules of a policy for the choice of an asset, in sentences."""
    if rule.allowed is not None:
        names = ", ".join(str(one) for one in rule.allowed.value)
        yield f"{what} is one of {names}, says {rule.allowed.said_by}."
    if rule.required is not None:
        yield f"{what} has to be chosen, says {rule.required.said_by}."


def _bounds(rule: EffectiveRule) -> tuple[tuple[str, Bound | None], ...]:
    return ("at most", rule.max), ("at least", rule.min)


_ASSETS: Final = {
    "assets.environment": "the environment asset",
    "assets.compute": "the compute resource",
    "assets.data_sources": "each data source",
}
_AMOUNTS: Final[Mapping[str, Callable[[Any], str]]] = {
    "gpus": lambda value: f"{value:g} GPUs",
    "cpu_millicores": rendering.cores,
    "memory_bytes": rendering.gib,
}


def free_gpus(nodes: Sequence[Node], projects: Sequence[Project] = ()) -> str:
    """``3 of 4 simulated GPUs are free now, at most 3 on one node``.

    Args:
        nodes: of the cluster.
        projects: that are known; what they borrow is given back to whoever is guaranteed it.
    """
    if not nodes:
        return ""
    devices = [device for node in nodes for device in node.devices]
    total = sum(node.gpu_milli for node in nodes) / 1000
    free = total - sum(node.gpu_allocated_milli for node in nodes) / 1000
    simulated = "simulated " if devices and all(device.simulated for device in devices) else ""
    line = f"{free:g} of {total:g} {simulated}GPUs are free now"
    if len(nodes) > 1:
        line += f", at most {max(node.largest_free_gpus for node in nodes)} on one node"
    borrowed = sum(project.use.gpus_borrowed for project in projects)
    if borrowed:
        line += f"; {borrowed:g} more {'is' if borrowed <= 1 else 'are'} borrowed and given back"
        line += " to a start within the guarantee"
    return f"{line}."


def _free_cpu(nodes: Sequence[Node]) -> str:
    if not nodes:
        return ""
    free = max(node.cpu_milli - node.cpu_allocated_milli for node in nodes)
    return f"{rendering.cores(max(0, free))} free now."


def _free_memory(nodes: Sequence[Node]) -> str:
    if not nodes:
        return ""
    free = max(node.memory_bytes - node.memory_allocated_bytes for node in nodes)
    return f"{rendering.gib(max(0, free))} free now."


def _most_gpus(
    supply: Supply, offer: WorkspaceChoices, projects: Sequence[Project | None]
) -> float:
    """The amount of the largest node, unless less is allowed or guaranteed to every project."""
    largest = max((node.gpu_milli // 1000 for node in supply.nodes), default=offer.most.gpus)
    quotas = [None if project is None else project.quota.gpus for project in projects]
    bounds = [quota for quota in quotas if quota is not None]
    guaranteed = max(bounds) if bounds and len(bounds) == len(quotas) else math.inf
    return min(largest, offer.most.gpus, guaranteed)


def _chosen(
    last: Mapping[str, Any],
    membership: Sequence[str],
    offer: WorkspaceChoices,
    known: Mapping[str, Project],
) -> WorkspaceChoice:
    """The form's first values: the last choice where it is still allowed.

    One with more GPUs than its project is guaranteed was refused, and would be again.
    """
    project, usual = membership[0] if membership else "", offer.defaults
    first = offer.profiles[0].slug if offer.profiles else ""
    fresh = WorkspaceChoice(project, usual.gpus, usual.cpu, usual.memory_gib, profile=first)
    try:
        choice = check(last, membership, offer)
    except BadOption:
        return fresh
    quota = known[choice.project].quota.gpus if choice.project in known else None
    if quota is not None and choice.gpus > quota:
        return replace(choice, gpus=usual.gpus)
    return choice
