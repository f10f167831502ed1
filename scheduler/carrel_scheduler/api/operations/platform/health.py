"""The health of the platform in detail; the plain liveness endpoint is ``api.health``."""

from typing import Final

from carrel_scheduler.api.operation import Call, Operation, Response
from carrel_scheduler.api.principals.access import AdmittedCallers
from carrel_schema.governance.health import DirectorySync, HealthReport


@Operation(
    "GET",
    "/health",
    access=AdmittedCallers.ADMIN,
    permission="alerts:read",
    answers={200: HealthReport},
)
async def read_health(call: Call) -> Response:
    """Read the health checks: their results, and what to do about failed ones."""
    return Response(await call.services.health.report())


@Operation(
    "PUT",
    "/directory-sync",
    access=AdmittedCallers.HUB,
    body=DirectorySync,
    answers={204: None},
    audited=False,
)
async def put_directory_sync(call: Call) -> Response:
    """Record the result of comparing rights with the directory; only the Hub calls it."""
    await call.services.health.take_directory_sync(call.body)
    return Response(status=204)


OPERATIONS: Final = (read_health, put_directory_sync)
