"""Health: the state of each part of the platform, and what to do about it."""

from typing import Final

from typing_extensions import override

from carrel_hub.console.handlers.base import LiveRegions, SignedInPage

TITLES: Final = {
    "scheduler": "Scheduler",
    "engine": "Engine",
    "ledger": "Ledger and disk",
    "backup": "Backup",
    "nodes": "Nodes and GPUs",
    "parts": "Hub, proxy and gateway",
    "certificate": "TLS certificate",
    "channels": "Alert channels",
    "directory": "Directory (LDAP, OIDC)",
}
STATES: Final = {"ok": "OK", "warning": "Warning", "failed": "Failed"}
READ_AGAIN_SECONDS: Final = 15


class HealthPage(SignedInPage):
    """The page of all health checks of the platform; it is refreshed while it is open."""

    @override
    async def get(self) -> None:
        """Show the checks."""
        await self.show_managed(
            "admin/health.html",
            section="health",
            live=LiveRegions(("checks",), READ_AGAIN_SECONDS),
            report=await self.client.health(),
            titles=TITLES,
            states=STATES,
        )
