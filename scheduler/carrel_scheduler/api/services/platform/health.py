"""The health of the platform, and the Hub's report about its directory."""

import msgspec

import carrel_scheduler
from carrel_scheduler.alerts.health import worst
from carrel_scheduler.api import problems
from carrel_scheduler.api.dependencies import ApiDependencies
from carrel_scheduler.api.problems import Code
from carrel_schema.governance.health import DIRECTORY_SETTING, DirectorySync, HealthReport


class Health:
    """Reads and reports health."""

    def __init__(self, deps: ApiDependencies) -> None:
        self._deps = deps

    async def report(self) -> HealthReport:
        """The present health checks. Raises ``Missing`` if the service does not run checks."""
        if self._deps.alerts is None:
            raise problems.Missing(Code.NOT_FOUND, "No alerts are looked for here")
        checks = await self._deps.alerts.health()
        return HealthReport(
            state=worst(checks),
            version=carrel_scheduler.__version__,
            at=self._deps.clock(),
            checks=checks,
        )

    async def take_directory_sync(self, told: DirectorySync) -> None:
        """Store a report about a sync; keeps an earlier success, and ignores future times."""
        now, ledger = self._deps.clock(), self._deps.ledger
        stored = (await ledger.settings()).get(DIRECTORY_SETTING)
        before = msgspec.convert(stored, DirectorySync) if stored else DirectorySync(reported_at=0)
        kept = DirectorySync(
            reported_at=now,
            succeeded_at=max(min(told.succeeded_at, now), before.succeeded_at),
            error=told.error,
        )
        await ledger.put_setting(DIRECTORY_SETTING, msgspec.to_builtins(kept))
