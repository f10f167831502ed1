"""Alerts, their rules, silences and channels."""

from typing import Final

from carrel_scheduler.alerts.controller import CHANNEL_KIND, RULE_KIND, SILENCE_KIND
from carrel_scheduler.api.operation import Answer, Call, Operation
from carrel_scheduler.api.principals.access import Access
from carrel_schema.governance.alerts import (
    AlertList,
    AlertRule,
    AlertRuleList,
    AlertRuleOut,
    ChannelFields,
    ChannelList,
    ChannelOut,
    SilenceFields,
    SilenceList,
    SilenceOut,
)

RULE: Final = "/alert-rules/{name}"
SILENCES: Final = "/silences"
CHANNELS: Final = "/notification-channels"
CHANNEL: Final = f"{CHANNELS}/{{name}}"


@Operation("GET", "/alerts", access=Access.USER, answers={200: AlertList})
async def list_alerts(call: Call) -> Answer:
    """List the alerts of the caller's projects; all for administrators."""
    return Answer(AlertList(items=await call.services.alerts.visible(call.visitor.person)))


@Operation("GET", "/alert-rules", access=Access.USER, answers={200: AlertRuleList})
async def list_alert_rules(call: Call) -> Answer:
    """List the rules that say when a condition is an alert."""
    return Answer(AlertRuleList(items=await call.services.alerts.rules()))


@Operation(
    "PUT",
    RULE,
    access=Access.ADMIN,
    permission="alerts:update",
    body=AlertRule,
    answers={200: AlertRuleOut},
    problems=(404,),
)
async def put_alert_rule(call: Call) -> Answer:
    """Change an alert rule."""
    made = await call.services.alerts.put_rule(call.path["name"], call.body, call.visitor.person)
    return Answer(made)


@Operation(
    "DELETE",
    RULE,
    access=Access.ADMIN,
    permission="alerts:update",
    answers={204: None},
    problems=(404,),
)
async def reset_alert_rule(call: Call) -> Answer:
    """Reset an alert rule to its built-in values."""
    await call.services.alerts.remove(RULE_KIND, call.path["name"])
    return Answer(status=204)


@Operation(
    "GET",
    SILENCES,
    access=Access.ADMIN,
    permission="alerts:read",
    answers={200: SilenceList},
)
async def list_silences(call: Call) -> Answer:
    """List the silences that have not ended."""
    return Answer(SilenceList(items=await call.services.alerts.silences()))


@Operation(
    "POST",
    SILENCES,
    access=Access.ADMIN,
    permission="alerts:update",
    body=SilenceFields,
    answers={201: SilenceOut},
)
async def create_silence(call: Call) -> Answer:
    """Create a silence: matching alerts send no messages until a time."""
    made = await call.services.alerts.add_silence(call.body, call.visitor.person)
    return Answer(made, 201)


@Operation(
    "DELETE",
    f"{SILENCES}/{{name}}",
    access=Access.ADMIN,
    permission="alerts:update",
    answers={204: None},
    problems=(404,),
)
async def delete_silence(call: Call) -> Answer:
    """End a silence."""
    await call.services.alerts.remove(SILENCE_KIND, call.path["name"])
    return Answer(status=204)


@Operation(
    "GET",
    CHANNELS,
    access=Access.ADMIN,
    permission="alerts:read",
    answers={200: ChannelList},
)
async def list_notification_channels(call: Call) -> Answer:
    """List the channels of alerts, with the state of their delivery."""
    return Answer(ChannelList(items=await call.services.alerts.channels()))


@Operation(
    "PUT",
    CHANNEL,
    access=Access.ADMIN,
    permission="alerts:update",
    body=ChannelFields,
    answers={200: ChannelOut},
)
async def put_notification_channel(call: Call) -> Answer:
    """Create a channel, or replace it."""
    made = await call.services.alerts.put_channel(call.path["name"], call.body, call.visitor.person)
    return Answer(made)


@Operation(
    "POST",
    f"{CHANNEL}/test",
    access=Access.ADMIN,
    permission="alerts:update",
    answers={200: ChannelOut},
    problems=(404, 409),
)
async def test_notification_channel(call: Call) -> Answer:
    """Send a message to a channel now."""
    return Answer(await call.services.alerts.test_channel(call.path["name"]))


@Operation(
    "DELETE",
    CHANNEL,
    access=Access.ADMIN,
    permission="alerts:update",
    answers={204: None},
    problems=(404,),
)
async def delete_notification_channel(call: Call) -> Answer:
    """Delete a channel."""
    await call.services.alerts.remove(CHANNEL_KIND, call.path["name"])
    return Answer(status=204)


OPERATIONS: Final = (
    list_alerts,
    list_alert_rules,
    put_alert_rule,
    reset_alert_rule,
    list_silences,
    create_silence,
    delete_silence,
    list_notification_channels,
    put_notification_channel,
    test_notification_channel,
    delete_notification_channel,
)
