"""The health of the platform in detail; the plain liveness endpoint is ``api.health``."""

from typing import Final

from carrel_scheduler.api.operation import Answer, Call, Operation
from carrel_scheduler.api.principals.access import Access
from carrel_schema.governance.health import DirectorySync, HealthReport


@Operation(
    "GET",
    "/health",
    access=Access.ADMIN,
    permission="alerts:read",
    answers={200: HealthReport},
)
async def read_health(call: Call) -> Answer:
    """Read the health checks: their results, and what to do about failed ones."""
    return Answer(await call.services.health.report())


@Operation(
    "PUT",
    "/directory-sync",
    access=Access.HUB,
    body=DirectorySync,
    answers={204: None},
    audited=False,
)
async def put_directory_sync(call: Call) -> Answer:
    """Record the result of comparing rights with the directory; only the Hub calls it."""
    await call.services.health.take_directory_sync(call.body)
    return Answer(status=204)


OPERATIONS: Final = (read_health, put_directory_sync)
