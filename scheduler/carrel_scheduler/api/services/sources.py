"""What a TensorBoard is over: jobs by their names, found when it is submitted."""

from difflib import get_close_matches

import msgspec

from carrel_scheduler.api import problems
from carrel_scheduler.api.problems import Code
from carrel_scheduler.ledger.objects import Workload
from carrel_scheduler.ledger.records import Ledger
from carrel_scheduler.ledger.store import NotFound
from carrel_scheduler.workloads import own_work

MOST_LOOKED_AT = 500


async def find(ledger: Ledger, workload: Workload) -> None:
    """Note where the event files of its jobs lie; other kinds of work stay as they are.

    Raises ``Invalid`` for a job that its project does not have.
    """
    asked = workload.spec.tensorboard
    if asked is None:
        return
    project, places = workload.meta.project, []
    for number, name in enumerate(asked.jobs):
        place = await _place(ledger, project, name)
        if not place:
            near = await _near(ledger, project, name)
            raise problems.invalid_field(
                f"tensorboard.jobs.{number}", Code.UNKNOWN_JOB, name, f"a job of `{project}`{near}"
            )
        places.append(place)
    workload.spec.tensorboard = msgspec.structs.replace(asked, events=tuple(places))


async def _place(ledger: Ledger, project: str, name: str) -> str:
    try:
        job = await ledger.get(Workload, name, project)
    except NotFound:
        return ""
    return own_work.events_of(job.meta.uid, job.spec)


async def _near(ledger: Ledger, project: str, name: str) -> str:
    listed = await ledger.list(Workload, projects=[project], limit=MOST_LOOKED_AT)
    found = get_close_matches(name, [job.meta.name for job in listed.items], 1)
    return f", such as `{found[0]}`" if found else ""
