"""References to other work in a request: found, or refused with the field that names it."""

from carrel_scheduler.api import problems
from carrel_scheduler.api.problems import Code
from carrel_scheduler.ledger.records import Ledger
from carrel_scheduler.workloads.launch import references
from carrel_scheduler.workloads.launch.references import UnknownSource
from carrel_schema.objects import Workload


async def find(ledger: Ledger, workload: Workload) -> None:
    """See ``workloads.sources``.

    Raises ``InvalidRequest`` for work that its project does not have.
    """
    try:
        await references.find(ledger, workload)
    except UnknownSource as error:
        of_secret = error.field.startswith("environment.") or error.field.endswith(".secret")
        code = Code.UNKNOWN_SECRET if of_secret else Code.UNKNOWN_JOB
        raise problems.invalid_field(error.field, code, error.name, error.expected) from error
