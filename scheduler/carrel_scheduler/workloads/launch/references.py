"""Other work that a workload names: found once, and noted by what stays its own.

A TensorBoard is over jobs; what goes on from others' checkpoints needs to know whose. The notes are
never taken from a request: they decide what a task may read.
"""

from difflib import get_close_matches

import msgspec

from carrel_scheduler.ledger.store import NotFound, ObjectStore
from carrel_scheduler.workloads.controllers.dependencies import still_waits
from carrel_scheduler.workloads.launch import builtin_programs
from carrel_schema.objects import Workload

MOST_LOOKED_AT = 500


class UnknownSource(Exception):  # noqa: N818 - an outcome to tell
    """A name that leads nowhere.

    Attributes:
        field: of the specification.
        name: the value of that field.
        expected: what would be right.
    """

    def __init__(self, field: str, name: str, expected: str) -> None:
        super().__init__(f"{field} is {name!r}; it should be {expected}.")
        self.field, self.name, self.expected = field, name, expected


async def find(store: ObjectStore, workload: Workload) -> None:
    """Note where the event files of its jobs lie, and what it goes on from, if it names any.

    Raises ``UnknownSource`` for work that its project does not have.
    """
    await _find_checkpoints(store, workload)
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


async def _find_checkpoints(store: ObjectStore, workload: Workload) -> None:
    """Checkpoints belong to a user, and only that user's work may read them."""
    name, project, user = workload.spec.continue_from, workload.meta.project, workload.spec.user
    workload.spec.continues = ""
    if not name:
        return
    try:
        before = await store.get(Workload, name, project)
    except NotFound:
        before = None
    if before is None or before.spec.user != user:
        near = await _near(store, project, name, user)
        raise UnknownSource("continue_from", name, f"work of your own in `{project}`{near}")
    workload.spec.continues = before.meta.uid


async def _find_dependencies(store: ObjectStore, workload: Workload) -> None:
    """Note what it waits for. What ended as it was to is waited for no more."""
    project, found, blocked = workload.meta.project, [], []
    for number, one in enumerate(workload.spec.after):
        field = f"after.{number}.name"
        try:
            before = await store.get(Workload, one.name, project)
        except NotFound:
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
    except NotFound:
        return ""
    return builtin_programs.events_of(job.meta.uid, job.spec)


async def _near(store: ObjectStore, project: str, name: str, user: str | None = None) -> str:
    listed = await store.list(Workload, projects=[project], user=user, limit=MOST_LOOKED_AT)
    found = get_close_matches(name, [job.meta.name for job in listed.items], 1)
    return f", such as `{found[0]}`" if found else ""
