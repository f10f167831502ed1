"""The messages of reasons that the life cycle gives (those of the core: ``core.messages.render``).

Tokens are stable; sentences are for people and follow one voice: what happened, then what helps.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from carrel_scheduler.core.messages import render
from carrel_scheduler.core.messages.amounts import amount
from carrel_scheduler.core.reasons import Reason
from carrel_scheduler.core.resources import MILLI
from carrel_scheduler.engines.external import WAITS_FOR_NODES, NodeRequestNote
from carrel_schema.kinds import WorkloadKind
from carrel_schema.objects import (
    Preemption,
    ReasonInfo,
    Workload,
    WorkloadSpec,
)
from carrel_schema.sections import Dependency
from carrel_schema.text.preemption_cost import preemption_cost

_RESUME: Final = "Resume it to put it back in the queue; it goes on from its last checkpoint."
TIMED_OUT: Final = "TimedOut"
WAITS_FOR: Final = "WaitsForWork"
OVER_USER_LIMIT: Final = "OverUserLimit"
NEVER_SATISFIED: Final = "DependencyNeverSatisfied"
GPU_MEMORY_EXCEEDED: Final = "GpuMemoryExceeded"
SHRINKS: Final = "Shrinks"
GROWS: Final = "Grows"
RESIZING: Final = frozenset({SHRINKS, GROWS})
START_AGAIN: Final = "Start it again; your files are where you left them."


def duration(seconds: float) -> str:
    """``45 s``, ``12 min``, ``3 h 05 min``, ``2 d 4 h``."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole} s"
    minutes = whole // 60
    if minutes < 60:
        rest = whole % 60
        return f"{minutes} min {rest} s" if minutes < 10 and rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes:02d} min"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h"


def from_core(reason: Reason, project: str) -> ReasonInfo:
    """A reason of a plan as it is stored; with the wording without foreign names beside it."""
    facts = render.data(reason, project)
    facts["sentence_without_names"] = render.sentence(reason, project, names=False)
    facts["help_without_names"] = render.help_text(reason, project, names=False)
    return ReasonInfo(
        token=reason.token.value,
        cls=reason.cls.value,
        sentence=render.sentence(reason, project),
        help=render.help_text(reason, project),
        data=facts,
    )


def about_nodes(info: ReasonInfo, note: NodeRequestNote) -> ReasonInfo:
    """The reason of work for which nodes are asked for, or not; ``info``: why it waits as it is."""
    data = {**info.data, "about_nodes": note.sentence}
    if note.waits:
        data |= {"sentence_without_names": note.sentence, "help_without_names": ""}
        return ReasonInfo(token=WAITS_FOR_NODES, cls="not-now", sentence=note.sentence, data=data)
    unnamed = f"{data['sentence_without_names']} {note.sentence}"
    return msgspec.structs.replace(
        info,
        sentence=f"{info.sentence} {note.sentence}",
        data={**data, "sentence_without_names": unnamed},
    )


def waits_for_nodes(info: ReasonInfo) -> ReasonInfo:
    """The forecast for work that no node could hold, where nodes are asked for."""
    what = "no node that is there could hold it; the cluster's autoscaler would be asked"
    return about_nodes(info, NodeRequestNote(f"Waiting for nodes: {what}.", waits=True))


def lowered(info: ReasonInfo, scope: str) -> ReasonInfo:
    """The reason of work whose priority is lowered, as the budget of ``scope`` is used up."""
    return _with_sentence(
        info, f"Its priority is lowered: the budget of {scope} is used up.", lowered_by=scope
    )


def starts_with(info: ReasonInfo, gpus: int) -> ReasonInfo:
    """The reason of work that would start now if it asked for so many GPUs."""
    told = f"It would start now with {amount('gpu', gpus * MILLI)}."
    return _with_sentence(info, told, starts_with_gpus=gpus)


def _with_sentence(info: ReasonInfo, told: str, **facts: Any) -> ReasonInfo:
    """The reason with one more sentence, which names nobody, and its facts."""
    data = {**info.data, **facts}
    if "sentence_without_names" in data:
        data["sentence_without_names"] = f"{data['sentence_without_names']} {told}"
    return msgspec.structs.replace(info, sentence=f"{info.sentence} {told}", data=data)


def gave_way(last: Preemption) -> str:
    """The reason of an evicted workload, until it starts again."""
    return f"Preempted by {_taker(last)}; {preemption_cost(last)}."


def workspace_gave_way(last: Preemption) -> ReasonInfo:
    """The reason of an evicted workspace, which does not restart by itself."""
    return ReasonInfo(
        token="Reclaimed" if last.rule == "reclaim" else "Preempted",
        cls="stopped",
        sentence=f"Stopped: it was preempted by {_taker(last)}.",
        help=START_AGAIN,
        data={"project": last.for_project, "rule": last.rule},
    )


_TAKERS = {
    "consolidate": "something larger, and goes on elsewhere",
    "incomplete": "others, because members of its gang were missing for too long",
    "drain": "the maintenance of its node",
    "improve": "its own wish for another type of GPUs",
    "evict": "whoever looks after the cluster",
}
"""The preemptor in words, for evictions under rules without one."""


def _taker(last: Preemption) -> str:
    if last.rule == "reclaim":
        return f"`{last.for_project}`, which reclaimed its fair share"
    return _TAKERS.get(last.rule, "work of its own project with a higher priority")


def gives_back(reason: ReasonInfo, what: str) -> ReasonInfo:
    """An elastic workload gives a part of what it holds back and goes on with the rest."""
    story = f"Gives back {what}."
    unnamed = reason.data.get("sentence_without_names", reason.sentence)
    return ReasonInfo(
        token=SHRINKS,
        sentence=f"{story} {reason.sentence}",
        help=reason.help,
        data={**reason.data, "sentence_without_names": f"{story} {unnamed}"},
    )


def grows_to(gpus: int) -> ReasonInfo:
    """An elastic task starts again with more GPUs."""
    return ReasonInfo(
        token=GROWS,
        sentence=f"Room for {gpus} GPUs is there: it saves its work and starts again with them.",
        data={"gpus": gpus},
    )


def project_is_coming(project: str) -> ReasonInfo:
    """A project made a moment ago."""
    return ReasonInfo(
        token="WaitsForProject",
        cls="not-now",
        sentence=f"Project `{project}` was made a moment ago and is not in force yet.",
        help="Ask again in a second.",
    )


def project_deleted(project: str, *, running: bool) -> ReasonInfo:
    """The reason of work whose project was deleted while it ran or waited."""
    return ReasonInfo(
        token="ProjectDeleted",
        cls="stopped" if running else "held-back",
        sentence=f"{'Stopped' if running else 'Waits'}: project `{project}` was deleted.",
        help="Delete it, or ask an administrator for a project of that name.",
    )


def suspended(spec: WorkloadSpec) -> ReasonInfo:
    """The reason of a suspended workload."""
    return ReasonInfo(
        token="Suspended",
        cls="stopped",
        sentence=f"Suspended{_by(spec)}.",
        help=_RESUME,
        data=_asked_by(spec),
    )


def deleted(spec: WorkloadSpec) -> ReasonInfo:
    """The reason of a workload that is being deleted."""
    return ReasonInfo(
        token="Deleted", cls="stopped", sentence=f"Deleted{_by(spec)}.", data=_asked_by(spec)
    )


def _by(spec: WorkloadSpec) -> str:
    if not spec.asked_by:
        return ""
    return " by its owner" if spec.asked_by == spec.user else f" by {spec.asked_by}"


def _asked_by(spec: WorkloadSpec) -> dict[str, str]:
    return {"asked_by": spec.asked_by} if spec.asked_by else {}


def _after_a_stop(kind: WorkloadKind) -> str:
    return START_AGAIN if kind == "workspace" else _RESUME


_KINDS_IN_WORDS: Final[dict[WorkloadKind, str]] = {
    "distributed": "distributed training",
    "notebook": "notebook job",
}


def _many(kind: WorkloadKind) -> str:
    return f"{_KINDS_IN_WORDS.get(kind, kind)}s"


def not_told(reason: ReasonInfo, why: str) -> ReasonInfo:
    """The message of work that the engine cannot end yet; "" once it can."""
    usual = reason.help.partition(_NOT_ENDED)[0].rstrip()
    said = f"{_NOT_ENDED} ({why}); that is tried again until it ends." if why else ""
    return msgspec.structs.replace(reason, help=f"{usual} {said}".strip())


_NOT_ENDED: Final = "It cannot be ended at the moment"


def timed_out(kind: WorkloadKind, project: str, limit_seconds: float) -> ReasonInfo:
    """The reason of work that reached the project's time limit for workspaces or trainings."""
    return ReasonInfo(
        token=TIMED_OUT,
        cls="stopped",
        sentence=(
            f"Stopped: {_many(kind)} of `{project}` may run for {duration(limit_seconds)}, "
            "and this one has."
        ),
        help=_after_a_stop(kind),
        data={"limit_seconds": limit_seconds},
    )


def ran_its_time(kind: WorkloadKind, limit_seconds: float) -> ReasonInfo:
    """The reason of work that reached its own time limit."""
    return ReasonInfo(
        token=TIMED_OUT,
        cls="stopped",
        sentence=f"Stopped: it has run for its time limit of {duration(limit_seconds)}.",
        help=_after_a_stop(kind),
        data={"limit_seconds": limit_seconds},
    )


def own_idle(kind: WorkloadKind, timeout_seconds: float, idle_seconds: float) -> ReasonInfo:
    """The reason of work that reached its own idle timeout."""
    lacked = "activity" if kind == "workspace" else "work on its GPUs"
    return ReasonInfo(
        token="Idle",
        cls="stopped",
        sentence=(
            f"Stopped after {duration(idle_seconds)} without {lacked}; its idle timeout is "
            f"{duration(timeout_seconds)}."
        ),
        help=_after_a_stop(kind),
        data={"timeout_seconds": timeout_seconds, "idle_seconds": idle_seconds},
    )


def idle(
    kind: WorkloadKind, project: str, timeout_seconds: float, idle_seconds: float
) -> ReasonInfo:
    """The project's idle timeout struck: for workspaces, or for the GPUs of trainings."""
    interactive = kind == "workspace"
    lacked = "activity" if interactive else "work on its GPUs"
    rule = "may be idle" if interactive else "may leave their GPUs idle"
    return ReasonInfo(
        token="Idle",
        cls="stopped",
        sentence=(
            f"Stopped after {duration(idle_seconds)} without {lacked}; {_many(kind)} of "
            f"`{project}` {rule} for {duration(timeout_seconds)}."
        ),
        help=_after_a_stop(kind),
        data={"timeout_seconds": timeout_seconds, "idle_seconds": idle_seconds},
    )


def gpu_memory_exceeded(
    spec: WorkloadSpec, held_mib: int, own_mib: int, *, ended: bool
) -> ReasonInfo:
    """The workload exceeds its fraction of its GPU's memory; ``ended``: and is stopped for it."""
    fraction = f"{spec.resources.gpu_milli / 1000:g}"
    amounts = (
        f"{held_mib} MiB of GPU memory, and {own_mib} MiB are its own with {fraction} of a GPU"
    )
    return ReasonInfo(
        token=GPU_MEMORY_EXCEEDED,
        cls="stopped" if ended else "",
        sentence=f"Stopped: it held {amounts}." if ended else f"It holds {amounts}.",
        help="Ask for a larger part, or have the program take less.",
        data={"held_mib": held_mib, "own_mib": own_mib},
    )


def unvisited(idle_seconds: float) -> ReasonInfo:
    """The reason of work that was stopped because nobody visited it."""
    return ReasonInfo(
        token="Idle",
        cls="stopped",
        sentence=f"Stopped: nobody has looked at it for {duration(idle_seconds)}.",
        help="Resume it to look again.",
        data={"idle_seconds": idle_seconds},
    )


def not_claimed(seconds: float) -> ReasonInfo:
    """The reason of a queued workspace that got its allocation and was not claimed."""
    return ReasonInfo(
        token="NotClaimed",
        cls="stopped",
        sentence=f"Its place was held for {duration(seconds)}, but the workspace did not start.",
        help="Start the workspace again.",
    )


def over_user_limit(workload: Workload, limit: int, held: int, asked: int) -> ReasonInfo:
    """The reason of work whose user would exceed the project's GPU limit for each user.

    Args:
        workload: that asks.
        limit: GPU thousandths of each user.
        held: those that its user has, or will get before.
        asked: those that it may come to hold.
    """
    user, project = workload.spec.user, workload.meta.project
    most, has, more = (f"{number / 1000:g}" for number in (limit, held, asked))
    alone = asked > limit
    return ReasonInfo(
        token=OVER_USER_LIMIT,
        cls="never" if alone else "held-back",
        sentence=f"Each user of the project `{project}` may have {most} GPUs at a time; this asks"
        f" for {more}"
        + ("." if alone else f", and {user} has {has} in use or before it in the queue."),
        help=f"Ask for {most} GPUs or less in all."
        if alone
        else f"It goes on once other work of {user} has ended.",
        data={
            "resource": "gpu",
            "user": user,
            "limit_gpus": limit / 1000,
            "held_gpus": held / 1000,
            "asked_gpus": asked / 1000,
        },
    )


def waits_for(workload: Workload) -> ReasonInfo:
    """The reason of work that waits for the end of other work, or for an end that cannot come."""
    blocked = set(workload.spec.blocked_by)
    ends = [one for one in workload.spec.after if one.name in blocked]
    unmet = [one for one in ends if one.unmet]
    if unmet:
        return _never_satisfied(unmet)
    succeed = [f"`{one.name}`" for one in ends if one.condition == "ok"]
    end = [f"`{one.name}`" for one in ends if one.condition == "any"]
    both = ((succeed, "succeed"), (end, "end"))
    parts = [f"{', '.join(names)} to {word}" for names, word in both if names]
    return ReasonInfo(
        token=WAITS_FOR,
        cls="held-back",
        sentence=f"Waits for {' and for '.join(parts)}.",
        help="If that fails, this fails too; `:any` would run it then as well.",
        data={"after": sorted(blocked)},
    )


def _never_satisfied(unmet: Sequence[Dependency]) -> ReasonInfo:
    """The reason of work whose dependencies did not succeed."""
    how = {"failed": "failed", "deleted": "was deleted before it succeeded"}
    first = unmet[0].name
    return ReasonInfo(
        token=NEVER_SATISFIED,
        cls="failed",
        sentence=f"Not started: {' and '.join(f'`{one.name}` {how[one.unmet]}' for one in unmet)}.",
        help=f"Run `{first}` again and then this, or submit this with `--after {first}:any`.",
        data={"after": [one.name for one in unmet]},
    )


def set_aside() -> ReasonInfo:
    """The reason of work that is set aside because the core fails with it in the queue."""
    return ReasonInfo(
        token="SetAside",
        cls="held-back",
        sentence="Set aside: the scheduler failed over this workload and goes on without it.",
        help="Tell an administrator; a change of it, or a restart, lets it be tried again.",
    )
