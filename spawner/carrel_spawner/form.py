"""The start form: what one may choose, with what is free now and what each project has left.

Rendered on the server from the scheduler's answers; when it does not answer, the form says so and
still lets one try.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from carrel.client import AsyncClient
from carrel.errors import CarrelError
from carrel.models import Node, Project, Workload
from carrel_schema.governance.policies import Bound, EffectivePolicy, EffectiveRule
from carrel_spawner import rendering
from carrel_spawner.options import BadOption, Choice, Offer, check


@dataclass(frozen=True, slots=True)
class Supply:
    """What the scheduler said about the cluster; empty when it said nothing."""

    projects: Sequence[Project] = ()
    nodes: Sequence[Node] = ()
    rules: Mapping[str, EffectivePolicy] = field(default_factory=dict)
    """What policies say of workspaces, by project."""
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """A project with its quota line in words."""

    name: str
    line: str
    rules: Sequence[str] = ()
    """What policies say of its workspaces, in words."""


@dataclass(frozen=True, slots=True)
class QueuePosition:
    """A place in the queue."""

    place: int | None
    sentence: str


async def ask(client: AsyncClient, membership: Sequence[str]) -> Supply:
    """Projects, nodes and rules now; trouble is part of the answer, not an error."""
    try:
        projects, nodes = await asyncio.gather(client.list_projects(), client.nodes())
        rules = await asyncio.gather(
            *(client.effective_policy(name, "workspace") for name in membership)
        )
        return Supply(projects, nodes, {one.project: one for one in rules})
    except CarrelError as error:
        return Supply(trouble=f"What is free now cannot be shown: {error}")


def render(
    user: str,
    membership: Sequence[str],
    supply: Supply,
    *,
    last: Mapping[str, Any],
    offer: Offer,
    waiting: Workload | None = None,
    queue_url: str = "",
) -> str:
    """The form's fields as HTML; ``last`` are the options of the previous start."""
    known = {project.name: project for project in supply.projects}
    lines = [
        Line(name, quota_line(known.get(name)), rules_said(supply.rules.get(name)))
        for name in membership
    ]
    return rendering.render(
        "form.html",
        user=user,
        trouble=supply.trouble,
        queued=place(waiting),
        queue_url=queue_url,
        projects=lines,
        chosen=_chosen(last, membership, offer),
        most=offer.most,
        most_gpus=_most_gpus(supply, offer),
        profiles=offer.profiles,
        folders=offer.folders,
        free_gpus=free_gpus(supply.nodes),
        free_cpu=_free_cpu(supply.nodes),
        free_memory=_free_memory(supply.nodes),
    )


def place(waiting: Workload | None) -> QueuePosition | None:
    """The place of a workspace that waits in the queue."""
    if waiting is None:
        return None
    reason = waiting.status.reason
    return QueuePosition(waiting.status.queue_position, reason.sentence if reason else "")


def quota_line(project: Project | None) -> str:
    """``1 of 2 guaranteed GPUs in use · 1 borrowed · 3 pending``."""
    if project is None:
        return "its use is not known right now"
    use, quota = project.use, project.quota.gpus
    own = use.gpus_allocated - use.gpus_borrowed
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


def rules_said(policy: EffectivePolicy | None) -> list[str]:
    """What policies say of the sizes that the form offers, one sentence for each bound."""
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
    return [text[:1].upper() + text[1:] for text in found]


def _bounds(rule: EffectiveRule) -> tuple[tuple[str, Bound | None], ...]:
    return ("at most", rule.max), ("at least", rule.min)


_AMOUNTS: Final[Mapping[str, Callable[[Any], str]]] = {
    "gpus": lambda value: f"{value:g} GPUs",
    "cpu_millicores": rendering.cores,
    "memory_bytes": rendering.gib,
}


def free_gpus(nodes: Sequence[Node]) -> str:
    """``3 of 4 simulated GPUs are free now, at most 3 on one node``."""
    if not nodes:
        return ""
    devices = [device for node in nodes for device in node.devices]
    total = sum(node.gpu_milli for node in nodes) / 1000
    free = total - sum(node.gpu_allocated_milli for node in nodes) / 1000
    simulated = "simulated " if devices and all(device.simulated for device in devices) else ""
    line = f"{free:g} of {total:g} {simulated}GPUs are free now"
    if len(nodes) > 1:
        line += f", at most {max(node.largest_free_gpus for node in nodes)} on one node"
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


def _most_gpus(supply: Supply, offer: Offer) -> int:
    """What the largest node has, unless less is allowed."""
    largest = max((node.gpu_milli // 1000 for node in supply.nodes), default=offer.most.gpus)
    return min(largest, offer.most.gpus)


def _chosen(last: Mapping[str, Any], membership: Sequence[str], offer: Offer) -> Choice:
    """What the form begins with: the last choice where it is still allowed."""
    project, usual = membership[0] if membership else "", offer.defaults
    first = offer.profiles[0].slug if offer.profiles else ""
    fresh = Choice(project, usual.gpus, usual.cpu, usual.memory_gib, profile=first)
    try:
        return check(last, membership, offer)
    except BadOption:
        return fresh
