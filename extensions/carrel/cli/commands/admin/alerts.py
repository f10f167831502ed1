"""``carrel alert``: alerts, silences and channels; ``carrel notify``: one's own notifications."""

import time
from typing import Annotated, Any, get_args

import typer

from carrel import units
from carrel.cli.common import (
    NoHeaders,
    Output,
    OutputOption,
    connected,
    document,
    fields,
    for_programs,
    say,
    show,
)
from carrel.errors import BadSetting
from carrel.wording import duration
from carrel_schema.governance.alerts import WorkEvent

Rule = Annotated[str, typer.Argument(metavar="RULE", help="As `carrel alert rules` names it.")]
Channel = Annotated[str, typer.Argument(metavar="CHANNEL", help="The channel.")]


def list_alerts(
    *,
    everything: Annotated[bool, typer.Option("--all", help="Also those that are over.")] = False,
    output: OutputOption = Output.TABLE,
    no_headers: NoHeaders = False,
) -> None:
    """List what needs attention in your projects; everything for administrators."""
    with connected() as client:
        found = [one for one in client.list_alerts() if everything or one.state != "resolved"]
    now = time.time()
    rows = (
        [
            f"{one.state}, silenced" if one.silenced_until > now else one.state,
            one.severity,
            one.rule,
            one.subject,
            duration(now - one.since),
            one.summary,
        ]
        for one in found
    )
    headers = ["STATE", "SEVERITY", "RULE", "SUBJECT", "FOR", "SUMMARY"]
    show(found, output, headers, rows, no_headers=no_headers)


def rules(*, output: OutputOption = Output.TABLE, no_headers: NoHeaders = False) -> None:
    """List the rules: what is looked for, and from when on it is an alert."""
    with connected() as client:
        found = client.list_alert_rules()
    rows = (
        [
            one.name,
            "yes" if one.enabled else "no",
            one.severity,
            f"{one.threshold:g} {one.unit}" if one.unit else "-",
            duration(one.for_seconds),
            one.description,
        ]
        for one in found
    )
    headers = ["RULE", "ENABLED", "SEVERITY", "THRESHOLD", "LASTS", "DESCRIPTION"]
    show(found, output, headers, rows, no_headers=no_headers)


def set_rule(
    rule: Rule,
    *,
    enabled: Annotated[bool | None, typer.Option("--enable/--disable")] = None,
    severity: Annotated[
        str | None, typer.Option("--severity", help="info, warning or critical.")
    ] = None,
    threshold: Annotated[
        float | None, typer.Option("--threshold", help="In the rule's own unit.")
    ] = None,
    lasts: Annotated[
        str | None, typer.Option("--for", metavar="TIME", help="How long it lasts, as 30m.")
    ] = None,
    reset: Annotated[bool, typer.Option("--reset", help="What is built in.")] = False,
) -> None:
    """Change a rule; what is not named stays."""
    with connected() as client:
        known = {one.name: one for one in client.list_alert_rules()}
        if rule not in known:
            raise BadSetting(f"{rule!r} should be one of {', '.join(known)}.", code="unknown_value")
        if reset:
            client.reset_alert_rule(rule)
            say(f"Rule {rule} is what is built in again.")
            return
        old = known[rule]
        client.put_alert_rule(
            rule,
            {
                "enabled": old.enabled if enabled is None else enabled,
                "severity": severity or old.severity,
                "threshold": old.threshold if threshold is None else threshold,
                "for_seconds": old.for_seconds if lasts is None else units.seconds(lasts, "--for"),
            },
        )
    say(f"Rule {rule} changed.")


def silence(
    *,
    lasts: Annotated[str, typer.Option("--for", metavar="TIME", help="For how long, as 2h.")],
    rule: Annotated[str, typer.Option("--rule", help="Which rule, * for any.")] = "*",
    subject: Annotated[
        str, typer.Option("--subject", help="As node/n1 or project/*; * for any.")
    ] = "*",
    comment: Annotated[str, typer.Option("--comment", help="For people.")] = "",
) -> None:
    """Silence some alerts for a time."""
    with connected() as client:
        made = client.create_silence(
            time.time() + units.seconds(lasts, "--for"), rule, subject, comment
        )
    say(f"Silence {made.name}: {made.rule} of {made.subject} for {lasts}.")


def silences(*, output: OutputOption = Output.TABLE, no_headers: NoHeaders = False) -> None:
    """List the silences that have not ended."""
    with connected() as client:
        found = client.list_silences()
    now = time.time()
    rows = ([one.name, one.rule, one.subject, duration(one.until - now), one.created_by,
             one.comment] for one in found)  # fmt: skip
    headers = ["SILENCE", "RULE", "SUBJECT", "LEFT", "BY", "COMMENT"]
    show(found, output, headers, rows, no_headers=no_headers)


def unsilence(
    name: Annotated[str, typer.Argument(metavar="SILENCE", help="As listed.")],
) -> None:
    """End a silence."""
    with connected() as client:
        client.delete_silence(name)
    say(f"Silence {name} is over.")


def channels(*, output: OutputOption = Output.TABLE, no_headers: NoHeaders = False) -> None:
    """List the channels that alerts are sent to, and whether sending works."""
    with connected() as client:
        found = client.list_channels()
    rows = ([one.name, one.kind, one.url, ", ".join(one.severities) or "all",
             one.error or "well"] for one in found)  # fmt: skip
    headers = ["CHANNEL", "KIND", "URL", "SEVERITIES", "SENDING"]
    show(found, output, headers, rows, no_headers=no_headers)


def set_channel(
    name: Channel,
    *,
    kind: Annotated[str, typer.Option("--kind", help="webhook, slack, alertmanager or mail.")],
    url: Annotated[str, typer.Option("--url", help="Its address; of mail smtps://HOST.")],
    secret: Annotated[
        str, typer.Option("--secret", help="A secret of the platform with its credentials.")
    ] = "",
    to: Annotated[list[str] | None, typer.Option("--to", help="An address of mail.")] = None,
    sender: Annotated[str, typer.Option("--sender", help="Where mail comes from.")] = "",
    severity: Annotated[
        list[str] | None, typer.Option("--severity", help="Only these; may be repeated.")
    ] = None,
    weekly_report: Annotated[
        bool, typer.Option("--weekly-report", help="Also send what was used in each week.")
    ] = False,
    people_domain: Annotated[
        list[str] | None,
        typer.Option("--people-domain", help="People may be sent mail here; may be repeated."),
    ] = None,
) -> None:
    """Create a channel that alerts are sent to, or replace it."""
    fields: dict[str, Any] = {"kind": kind, "url": url, "secret": secret, "sender": sender}
    fields |= {"weekly_report": weekly_report, "people_domains": people_domain or []}
    with connected() as client:
        client.put_channel(name, fields | {"to": to or [], "severities": severity or []})
    say(f"Channel {name} is told of alerts; try it: carrel alert test-channel {name}")


def try_channel(name: Channel) -> None:
    """Send a message to a channel now."""
    with connected() as client:
        client.test_channel(name)
    say(f"Channel {name} took a message.")


def delete_channel(name: Channel) -> None:
    """Remove a channel."""
    with connected() as client:
        client.delete_channel(name)
    say(f"Channel {name} is deleted.")


def show_own(*, output: OutputOption = Output.TABLE) -> None:
    """Show where you are notified of your own work, and whether sending works."""
    with connected() as client:
        found = client.own_notifications()
    if for_programs(output):
        document(found, output)
        return
    if not found.kind:
        say("You are told of nothing: `carrel notify set` says where and of what.")
    sent = duration(time.time() - found.sent_at) + " ago" if found.sent_at else ""
    facts = [("Told by", found.kind), ("At", found.address or found.url)]
    facts += [("Of", ", ".join(found.events) or "nothing" if found.kind else "")]
    facts += [("Last sent", sent), ("Not sent", found.error)]
    fields([*facts, ("Mail may go to", ", ".join(found.mail_domains))])


def set_own(
    *,
    kind: Annotated[str, typer.Option("--kind", help="mail, slack or webhook.")],
    address: Annotated[str, typer.Option("--address", help="Your address of mail.")] = "",
    url: Annotated[str, typer.Option("--url", help="Your hook, an https address.")] = "",
    event: Annotated[
        list[str] | None,
        typer.Option(
            "--event",
            help="finished, failed, preempted, long-pending or idle-gpu; may be repeated. All.",
        ),
    ] = None,
) -> None:
    """Set where you are notified of your own work, and of which events."""
    events = event or list(get_args(WorkEvent))
    with connected() as client:
        client.put_own_notifications(
            {"kind": kind, "address": address, "url": url, "events": events}
        )
    say(f"You are told of {', '.join(events)} by {kind}; try it: carrel notify test")


def test_own() -> None:
    """Send a test message to yourself."""
    with connected() as client:
        client.test_own_notifications()
    say("A message was taken.")


def delete_own() -> None:
    """Delete your subscription: you are sent no messages any more."""
    with connected() as client:
        client.delete_own_notifications()
    say("You are told of nothing any more.")
