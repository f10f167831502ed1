"""References of a workload to other work: found once, and stored by what stays the same.

A TensorBoard is over jobs; what goes on from others' checkpoints needs to know whose; what serves a
model is told which version. The notes are never taken from a request: they decide what a task may
read.
"""

from difflib import get_close_matches

import msgspec

from carrel_scheduler.ledger.records import Ledger
from carrel_scheduler.ledger.store import ObjectNotFound, ObjectStore
from carrel_scheduler.workloads.controllers.dependencies import still_waits
from carrel_scheduler.workloads.launch import named_secrets
from carrel_scheduler.workloads.launch.named_secrets import MissingSecret
from carrel_scheduler.workloads.launch.task_specs import events_of
from carrel_schema.objects import Workload

MOST_LOOKED_AT = 500
COPIES = "copies"
"""The folder of kept checkpoints, apart from those of work."""


class UnknownSource(Exception):  # noqa: N818 - an outcome to tell
    """A reference to an object that does not exist.

    Attributes:
        field: of the specification.
        name: the value of that field.
        expected: what would be right.
    """

    def __init__(self, field: str, name: str, expected: str) -> None:
        super().__init__(f"{field} is {name!r}; it should be {expected}.")
        self.field, self.name, self.expected = field, name, expected


async def find(store: Ledger, workload: Workload) -> None:
    """Note where the event files of its jobs lie, what it goes on from, and its model, if any.

    Secrets that its variables name have to be there. Raises ``UnknownSource`` for what its project
    does not have.
    """
    try:
        await named_secrets.check(store, workload)
    except MissingSecret as error:
        raise UnknownSource(error.field, error.name, error.expected) from error
    await _find_checkpoints(store, workload)
    await _find_model(store, workload)
    await _find_dependencies(store, workload)
    asked = workload.spec.tensorboard
    if asked is None:
        return
    project, places = workload.meta.project, []
    for number, name in enumerate(asked.jobs):
        place = await _place(store, project, name)
        if not place:
            near = await _near(store, project, name)
            raise UnknownSource(f"tensorboard.jobs.{number}", name, f"a job of `{project}`{near}")
        places.append(place)
    workload.spec.tensorboard = msgspec.structs.replace(asked, events=tuple(places))


async def _find_checkpoints(ledger: Ledger, workload: Workload) -> None:
    """Find the checkpoints to continue from; only those of the same user may be read."""
    asked, project, user = workload.spec.continue_from, workload.meta.project, workload.spec.user
    workload.spec.continues = ""
    if not asked:
        return
    name, _, checkpoint = asked.partition(":")
    kept = {
        one.copy.name: one.uid
        for one in await ledger.copies("checkpoint", project)
        if (one.copy.workload, one.copy.user) == (name, user)
    }
    if checkpoint in kept:
        workload.spec.continues = f"{COPIES}/{kept[checkpoint]}"
        return
    try:
        before = await ledger.get(Workload, name, project)
    except ObjectNotFound:
        before = None
    if before is not None and before.spec.user == user:
        workload.spec.continues = before.meta.uid
    elif kept and not checkpoint:
        workload.spec.continues = f"{COPIES}/{[*kept.values()][-1]}"
    else:
        near = f", such as `{name}:{next(iter(kept))}`" if kept else ""
        near = near or await _near(ledger, project, name, user)
        raise UnknownSource("continue_from", asked, f"work of your own in `{project}`{near}")


async def _find_model(ledger: Ledger, workload: Workload) -> None:
    """Note which version of a model is meant; a name alone is its latest one."""
    spec, project = workload.spec, workload.meta.project
    spec.model_uid = ""
    if not spec.model:
        return
    name, _, version = spec.model.partition("@")
    found = await ledger.copies("model", project, name)
    wanted = [one for one in found if version in ("", str(one.copy.version))]
    if not wanted:
        known = [f"{one.copy.name}@{one.copy.version}" for one in found]
        known = known or [one.copy.name for one in await ledger.copies("model", project)]
        near = f", such as `{known[-1]}`" if known else ""
        right = f"a model of `{project}`, as NAME@VERSION{near}"
        raise UnknownSource("model", spec.model, right)
    spec.model_uid, spec.model = wanted[-1].uid, f"{name}@{wanted[-1].copy.version}"


async def _find_dependencies(store: ObjectStore, workload: Workload) -> None:
    """Note what it waits for. What ended as it was to is waited for no more."""
    project, found, blocked = workload.meta.project, [], []
    for number, one in enumerate(workload.spec.after):
        field = f"after.{number}.name"
        try:
            before = await store.get(Workload, one.name, project)
        except ObjectNotFound:
            near = await _near(store, project, one.name)
            raise UnknownSource(field, one.name, f"work of `{project}`{near}") from None
        if before.meta.uid == workload.meta.uid:
            raise UnknownSource(field, one.name, "work other than itself")
        waits = still_waits(before, one.condition)
        if waits is None:
            right = f"work that can still succeed: it {before.status.phase}; take it with `any`"
            raise UnknownSource(field, one.name, right)
        found.append(msgspec.structs.replace(one, uid=before.meta.uid))
        blocked += [one.name] if waits else []
    workload.spec.after, workload.spec.blocked_by = found, blocked


async def _place(store: ObjectStore, project: str, name: str) -> str:
    try:
        job = await store.get(Workload, name, project)
    except ObjectNotFound:
        return ""
    return events_of(job.meta.uid, job.spec)


async def _near(store: ObjectStore, project: str, name: str, user: str | None = None) -> str:
    listed = await store.list(Workload, projects=[project], user=user, limit=MOST_LOOKED_AT)
    found = get_close_matches(name, [job.meta.name for job in listed.items], 1)
    return f", such as `{found[0]}`" if found else ""
