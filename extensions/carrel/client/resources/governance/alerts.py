"""Alerts, their rules, silences and channels; the health of the platform."""

from collections.abc import Mapping, Sequence
from typing import Any

from carrel.client.transport import Transport, segment
from carrel_schema.governance.alerts import (
    AlertList,
    AlertOut,
    AlertRuleList,
    AlertRuleOut,
    ChannelList,
    ChannelOut,
    SilenceList,
    SilenceOut,
    SubscriptionOut,
)
from carrel_schema.governance.health import HealthReport

CHANNELS = "/notification-channels"
OWN = "/users/me/notifications"


class AlertMethods:
    """Read alerts; change rules, silences and channels (administrators)."""

    _transport: Transport

    async def health(self) -> HealthReport:
        """The state of each part of the platform, and what to do about it (administrators)."""
        return await self._transport.ask("GET", "/health", HealthReport)

    async def put_directory_sync(self, succeeded_at: float, error: str = "") -> None:
        """Report how comparing rights with the directory went (the Hub); epoch seconds."""
        body = {"reported_at": succeeded_at, "succeeded_at": succeeded_at, "error": error[:500]}
        await self._transport.send("PUT", "/directory-sync", body=body)

    async def list_alerts(self) -> Sequence[AlertOut]:
        """Alerts that the caller may see, firing ones first."""
        return (await self._transport.ask("GET", "/alerts", AlertList)).items

    async def list_alert_rules(self) -> Sequence[AlertRuleOut]:
        """The rules of alerts."""
        return (await self._transport.ask("GET", "/alert-rules", AlertRuleList)).items

    async def put_alert_rule(self, name: str, fields: Mapping[str, Any]) -> AlertRuleOut:
        """Change a rule: ``enabled``, ``severity``, ``for_seconds``, ``threshold``."""
        path = f"/alert-rules/{segment(name)}"
        return await self._transport.ask("PUT", path, AlertRuleOut, body=dict(fields))

    async def reset_alert_rule(self, name: str) -> None:
        """Return a rule to what is built in."""
        await self._transport.send("DELETE", f"/alert-rules/{segment(name)}")

    async def list_silences(self) -> Sequence[SilenceOut]:
        """Silences that have not ended."""
        return (await self._transport.ask("GET", "/silences", SilenceList)).items

    async def create_silence(
        self, until: float, rule: str = "*", subject: str = "*", comment: str = ""
    ) -> SilenceOut:
        """Keep alerts from being told until a time in epoch seconds."""
        body = {"until": until, "rule": rule, "subject": subject, "comment": comment}
        return await self._transport.ask("POST", "/silences", SilenceOut, body=body)

    async def delete_silence(self, name: str) -> None:
        """End a silence."""
        await self._transport.send("DELETE", f"/silences/{segment(name)}")

    async def list_channels(self) -> Sequence[ChannelOut]:
        """The notification channels, with the state of their deliveries."""
        return (await self._transport.ask("GET", CHANNELS, ChannelList)).items

    async def put_channel(self, name: str, fields: Mapping[str, Any]) -> ChannelOut:
        """Create a channel, or replace it."""
        path = f"{CHANNELS}/{segment(name)}"
        return await self._transport.ask("PUT", path, ChannelOut, body=dict(fields))

    async def test_channel(self, name: str) -> ChannelOut:
        """Send a message to a channel now; an error says why it was not taken."""
        path = f"{CHANNELS}/{segment(name)}/test"
        return await self._transport.ask("POST", path, ChannelOut, body={})

    async def delete_channel(self, name: str) -> None:
        """Remove a channel."""
        await self._transport.send("DELETE", f"{CHANNELS}/{segment(name)}")

    async def own_notifications(self) -> SubscriptionOut:
        """The caller's subscription to news of their own work, and the state of its deliveries."""
        return await self._transport.ask("GET", OWN, SubscriptionOut)

    async def put_own_notifications(self, fields: Mapping[str, Any]) -> SubscriptionOut:
        """Set where (``kind``, ``address`` or ``url``) and of which ``events`` to be notified."""
        return await self._transport.ask("PUT", OWN, SubscriptionOut, body=dict(fields))

    async def delete_own_notifications(self) -> None:
        """Delete the caller's own subscription to notifications."""
        await self._transport.send("DELETE", OWN)

    async def test_own_notifications(self) -> SubscriptionOut:
        """Send a test message to the caller; an error says why it was not taken."""
        return await self._transport.ask("POST", f"{OWN}/test", SubscriptionOut, body={})
