"""Alerts, their rules, silences and channels."""

from typing import Final

from carrel_scheduler.alerts.controller import CHANNEL_KIND, RULE_KIND, SILENCE_KIND
from carrel_scheduler.api.operation import Call, Operation, Response
from carrel_scheduler.api.principals.access import AdmittedCallers
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


@Operation("GET", "/alerts", access=AdmittedCallers.USER, answers={200: AlertList})
async def list_alerts(call: Call) -> Response:
    """List the alerts of the caller's projects; all for administrators."""
    return Response(AlertList(items=await call.services.alerts.visible(call.visitor.person)))


@Operation("GET", "/alert-rules", access=AdmittedCallers.USER, answers={200: AlertRuleList})
async def list_alert_rules(call: Call) -> Response:
    """List the rules that say when a condition is an alert."""
    return Response(AlertRuleList(items=await call.services.alerts.rules()))


@Operation(
    "PUT",
    RULE,
    access=AdmittedCallers.ADMIN,
    permission="alerts:update",
    body=AlertRule,
    answers={200: AlertRuleOut},
    problems=(404,),
)
async def put_alert_rule(call: Call) -> Response:
    """Change an alert rule."""
    made = await call.services.alerts.put_rule(call.path["name"], call.body, call.visitor.person)
    return Response(made)


@Operation(
    "DELETE",
    RULE,
    access=AdmittedCallers.ADMIN,
    permission="alerts:update",
    answers={204: None},
    problems=(404,),
)
async def reset_alert_rule(call: Call) -> Response:
    """Reset an alert rule to its built-in values."""
    await call.services.alerts.remove(RULE_KIND, call.path["name"])
    return Response(status=204)


@Operation(
    "GET",
    SILENCES,
    access=AdmittedCallers.ADMIN,
    permission="alerts:read",
    answers={200: SilenceList},
)
async def list_silences(call: Call) -> Response:
    """List the silences that have not ended."""
    return Response(SilenceList(items=await call.services.alerts.silences()))


@Operation(
    "POST",
    SILENCES,
    access=AdmittedCallers.ADMIN,
    permission="alerts:update",
    body=SilenceFields,
    answers={201: SilenceOut},
)
async def create_silence(call: Call) -> Response:
    """Create a silence: matching alerts send no messages until a time."""
    made = await call.services.alerts.add_silence(call.body, call.visitor.person)
    return Response(made, 201)


@Operation(
    "DELETE",
    f"{SILENCES}/{{name}}",
    access=AdmittedCallers.ADMIN,
    permission="alerts:update",
    answers={204: None},
    problems=(404,),
)
async def delete_silence(call: Call) -> Response:
    """End a silence."""
    await call.services.alerts.remove(SILENCE_KIND, call.path["name"])
    return Response(status=204)


@Operation(
    "GET",
    CHANNELS,
    access=AdmittedCallers.ADMIN,
    permission="alerts:read",
    answers={200: ChannelList},
)
async def list_notification_channels(call: Call) -> Response:
    """List the channels of alerts, with the state of their delivery."""
    return Response(ChannelList(items=await call.services.alerts.channels()))


@Operation(
    "PUT",
    CHANNEL,
    access=AdmittedCallers.ADMIN,
    permission="alerts:update",
    body=ChannelFields,
    answers={200: ChannelOut},
)
async def put_notification_channel(call: Call) -> Response:
    """Create a channel, or replace it."""
    made = await call.services.alerts.put_channel(call.path["name"], call.body, call.visitor.person)
    return Response(made)


@Operation(
    "POST",
    f"{CHANNEL}/test",
    access=AdmittedCallers.ADMIN,
    permission="alerts:update",
    answers={200: ChannelOut},
    problems=(404, 409),
)
async def test_notification_channel(call: Call) -> Response:
    """Send a message to a channel now."""
    return Response(await call.services.alerts.test_channel(call.path["name"]))


@Operation(
    "DELETE",
    CHANNEL,
    access=AdmittedCallers.ADMIN,
    permission="alerts:update",
    answers={204: None},
    problems=(404,),
)
async def delete_notification_channel(call: Call) -> Response:
    """Delete a channel."""
    await call.services.alerts.remove(CHANNEL_KIND, call.path["name"])
    return Response(status=204)


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
