"""Alerts over HTTP: seen by whom they concern, told to real channels, silenced, kept."""

import asyncio
import hashlib
import hmac
from typing import Any

import pytest

from carrel_scheduler.alerts.conditions import Facts, QueueFacts
from carrel_scheduler.alerts.controller import AlertController
from carrel_schema.answers import NodeView
from contract.api.mailbox import mailbox
from contract.api.service import ApiHarness
from contract.api.webhook import Hook, hook

__all__ = ["hook"]

PLANTED = "planted-k3y"


def lost() -> dict[str, Any]:
    return {
        "nodes": [NodeView(name="n1", status="lost")],
        "queues": {"vision": QueueFacts(2000, 0, 1000)},
    }


async def look(harness: ApiHarness, facts: dict[str, Any], minutes: int = 60) -> None:
    """Let the controller look at these facts for so long."""
    for _ in range(minutes):
        harness.clock.now += 60
        harness.facts = Facts(now=harness.clock.now, **facts)
        await harness.alerts.once()


async def test_alerts_are_told_once_and_silenced(harness: ApiHarness, hook: Hook) -> None:
    await harness.ask(
        "PUT", "/secrets/hook?scope=platform", "root", json={"data": {"signing_key": PLANTED}}
    )
    channel = {"kind": "webhook", "url": hook.url, "secret": "hook"}
    made = await harness.ask("PUT", "/notification-channels/ops", "root", json=channel)
    assert made.body["url"] == hook.url.partition("?")[0]
    assert (await harness.ask("POST", "/notification-channels/ops/test", "root")).status == 200
    headers, body = hook.took.pop()
    signed = hmac.new(PLANTED.encode(), body, hashlib.sha256).hexdigest()
    assert headers["X-Carrel-Signature"] == f"sha256={signed}"
    silence = {"until": harness.clock.now + 40_000, "rule": "starved-queue"}
    quiet = await harness.ask("POST", "/silences", "root", json=silence)
    assert quiet.status == 201
    await look(harness, lost())
    assert len(hook.took) == 1
    assert b'"rule": "node-lost"' in hook.took[0][1]
    everything = (await harness.ask("GET", "/alerts", "root")).body["items"]
    assert {one["rule"] for one in everything} == {"node-lost", "starved-queue"}
    [own] = (await harness.ask("GET", "/alerts", "ada")).body["items"]
    assert (own["rule"], own["state"]) == ("starved-queue", "firing")
    assert own["silenced_until"] == silence["until"]
    assert (await harness.ask("GET", "/alerts", "carl")).body["items"] == []
    await harness.alerts.close()
    harness.alerts = AlertController(harness.ledger, lambda: harness.facts, harness.clock)
    await look(harness, lost(), 5)
    assert len(hook.took) == 1, "a new scheduler tells nobody again"
    await look(harness, {}, 2)
    assert len(hook.took) == 2
    assert b'"state": "resolved"' in hook.took[1][1]
    name = quiet.body["name"]
    assert (await harness.ask("DELETE", f"/silences/{name}", "root")).status == 204


async def test_a_channel_that_is_down_is_seen_and_served_later(
    harness: ApiHarness, hook: Hook
) -> None:
    hook.status = 503
    channel = {"kind": "slack", "url": hook.url}
    await harness.ask("PUT", "/notification-channels/ops", "root", json=channel)
    tried = await harness.ask("POST", "/notification-channels/ops/test", "root")
    assert (tried.status, tried.code) == (409, "not_delivered")
    await look(harness, lost(), 5)
    [shown] = (await harness.ask("GET", "/notification-channels", "root")).body["items"]
    assert (shown["error"], shown["waiting"]) == ("it answered 503", 1)
    hook.status = 200
    await look(harness, lost(), 20)
    [shown] = (await harness.ask("GET", "/notification-channels", "root")).body["items"]
    assert (shown["error"], shown["waiting"]) == ("", 0)
    assert b"Critical: node-lost" in hook.took[-1][1]


@pytest.mark.parametrize(
    "change",
    [
        {"secret": "odd"},
        {"kind": "mail", "url": "smtp://127.0.0.1:99999", "to": ["ops@example.org"]},
        {"kind": "mail", "url": "smtp://127.0.0.1:9", "to": ["ops@example.org\nBcc: eve@h.org"]},
    ],
)
async def test_a_malformed_channel_keeps_nobody_else_from_being_told(
    harness: ApiHarness, hook: Hook, change: dict[str, Any]
) -> None:
    odd = {"data": {"token": f"{PLANTED}\nX: 1"}}
    await harness.ask("PUT", "/secrets/odd?scope=platform", "root", json=odd)
    channel = {"kind": "webhook", "url": hook.url}
    await harness.ask("PUT", "/notification-channels/a", "root", json=channel | change)
    await harness.ask("PUT", "/notification-channels/b", "root", json=channel)
    tried = await harness.ask("POST", "/notification-channels/a/test", "root")
    assert (tried.status, tried.code) == (409, "not_delivered")
    assert PLANTED not in str(tried.body)
    await look(harness, lost(), 5)
    first, second = (await harness.ask("GET", "/notification-channels", "root")).body["items"]
    assert (first["waiting"], second["waiting"]) == (1, 0)
    assert "malformed" in first["error"]
    assert len(hook.took) == 1


async def test_who_asks_while_the_states_are_read_makes_nothing_fire_again(
    harness: ApiHarness, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = {"kind": "webhook", "url": hook.url}
    await harness.ask("PUT", "/notification-channels/ops", "root", json=channel)
    fires = {"for_seconds": 0, "severity": "critical"}
    await harness.ask("PUT", "/alert-rules/node-lost", "root", json=fires)
    harness.facts = Facts(now=harness.clock.now, **lost())
    read, began, go_on = harness.ledger.settings, asyncio.Event(), asyncio.Event()

    async def settings() -> Any:
        found = await read()
        if not began.is_set():
            began.set()
            await go_on.wait()
        return found

    monkeypatch.setattr(harness.ledger, "settings", settings)
    slow = asyncio.create_task(harness.alerts.alerts())
    await began.wait()
    await harness.alerts.once()
    go_on.set()
    await slow
    await harness.alerts.once()
    assert len(hook.took) == 1


async def test_mail_is_sent(harness: ApiHarness) -> None:
    with mailbox() as (url, mails):
        channel = {"kind": "mail", "url": url, "to": ["ops@example.org"]}
        await harness.ask("PUT", "/notification-channels/mail", "root", json=channel)
        sent = await harness.ask("POST", "/notification-channels/mail/test", "root")
        assert sent.status == 200, sent.body
    assert mails[0].rcpt_tos == ["ops@example.org"]
    assert b"Carrel reaches this channel." in mails[0].content


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"kind": "mail"}, "url"),
        ({"url": "smtps://host"}, "url"),
        ({"url": "https://ada:pw@host/x"}, "url"),
        ({"url": "file:///etc/passwd"}, "url"),
        ({"kind": "mail", "url": "smtps://host"}, "to"),
        ({"kind": "pager"}, "kind"),
        ({"weekly_report": True}, "weekly_report"),
    ],
)
async def test_a_channel_that_cannot_be_is_refused(
    harness: ApiHarness, change: dict[str, Any], field: str
) -> None:
    body = {"kind": "webhook", "url": "https://host/x"} | change
    refused = await harness.ask("PUT", "/notification-channels/ops", "root", json=body)
    assert (refused.status, list(refused.fields)) == (422, [field])
    assert "ada:pw" not in str(refused.body)


async def test_rules_are_changed_and_reset(harness: ApiHarness) -> None:
    body = {"enabled": False, "severity": "info", "for_seconds": 60, "threshold": 5}
    assert (await harness.ask("PUT", "/alert-rules/idle-gpu", "ada", json=body)).status == 403
    changed = await harness.ask("PUT", "/alert-rules/idle-gpu", "root", json=body)
    assert (changed.body["enabled"], changed.body["threshold"]) == (False, 5)
    rules = (await harness.ask("GET", "/alert-rules", "ada")).body["items"]
    assert next(one for one in rules if one["name"] == "idle-gpu")["severity"] == "info"
    assert (await harness.ask("DELETE", "/alert-rules/idle-gpu", "root")).status == 204
    assert (await harness.ask("PUT", "/alert-rules/nothing", "root", json=body)).status == 404
    past = {"until": harness.clock.now - 1}
    assert (await harness.ask("POST", "/silences", "root", json=past)).fields == {
        "until": "invalid"
    }
