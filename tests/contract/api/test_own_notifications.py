"""People are told of their own work, if they ask for it, once, and of nobody else's."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from carrel_scheduler.alerts.subscriptions import MOST_EACH, WorkSubscriptions, record_of
from carrel_scheduler.ledger.records import Transition
from carrel_schema.governance.alerts import AlertOut, SubscriptionFields
from carrel_schema.objects import ReasonInfo
from contract.api.mailbox import mailbox
from contract.api.service import ApiHarness
from contract.api.webhook import Hook, hook

__all__ = ["hook"]

OWN = "/users/me/notifications"
EVERYTHING = ["finished", "failed", "preempted", "long-pending", "idle-gpu"]
HIDDEN_PATH = "T0000-hidden-path"


@pytest.fixture
async def work(harness: ApiHarness) -> AsyncIterator[WorkSubscriptions]:
    """What tells people, also on loopback."""
    alerts = harness.alerts
    made = WorkSubscriptions(
        harness.ledger,
        alerts.channels,
        alerts._secret,
        harness.clock,
        "https://c/console",
        public=False,
    )
    alerts.subscriptions = made
    yield made
    await made.close()


async def becomes(harness: ApiHarness, phase: str, *, user: str = "ada", **more: Any) -> None:
    """Record that work of somebody has come to a phase."""
    epoch = await harness.ledger.begin_epoch()
    told = {"workload": "train-1", "project": "vision", "kind": "training"} | more
    row = Transition(
        at=harness.clock(), epoch=epoch, workload_uid="u", user=user,
        from_phase="running", to_phase=phase, **told,
    )  # fmt: skip
    await harness.ledger.record(epoch=epoch, transitions=[row])


async def subscribed(harness: ApiHarness, hook: Hook, *events: str, user: str = "ada") -> None:
    """Through the ledger's own record: the API takes no hook on loopback."""
    made = SubscriptionFields(kind="webhook", url=hook.url, events=list(events))  # type: ignore[arg-type]
    await harness.ledger.scoped.put(record_of(user, made), actor=user)
    await harness.alerts.subscriptions.once()  # from here on


def bodies(hook: Hook) -> list[dict[str, Any]]:
    return [json.loads(body) for _, body in hook.took]


async def test_ends_are_told_once_to_whom_they_concern(
    harness: ApiHarness, hook: Hook, work: WorkSubscriptions
) -> None:
    await subscribed(harness, hook, "finished", "failed", "preempted")
    await becomes(harness, "succeeded")
    await becomes(harness, "succeeded", user="carl", workload="secret", project="speech")
    await becomes(harness, "failed", kind="trial")
    await becomes(harness, "running")
    harness.clock.now += 10
    await work.once()
    await work.once()
    assert bodies(hook) == [
        {
            "event": "finished",
            "work": "vision/train-1",
            "user": "ada",
            "text": "vision/train-1 has finished.",
            "at": harness.clock.now - 10,
            "address": "https://c/console/jobs/vision/train-1",
        }
    ]
    why = ReasonInfo(token="Failed", sentence="It was preempted by speech/secret.")
    await becomes(harness, "preempting", reason=why)
    await becomes(harness, "failed", reason=ReasonInfo(token="Failed", sentence="Exit code 3."))
    await work.once()
    texts = [one["text"] for one in bodies(hook)[1:]]
    assert texts == [
        "vision/train-1 is being preempted.",
        "vision/train-1 has failed.\nExit code 3.",
    ]
    assert "secret" not in str(bodies(hook))
    again = WorkSubscriptions(
        harness.ledger, harness.alerts.channels, harness.alerts._secret, harness.clock, public=False
    )
    await again.once()
    assert len(hook.took) == 3, "a new scheduler tells nothing again"
    await again.close()


async def test_what_was_before_one_asked_is_not_told(
    harness: ApiHarness, hook: Hook, work: WorkSubscriptions
) -> None:
    await subscribed(harness, hook, "finished")
    await work.once()
    await harness.ask("DELETE", OWN, "ada")
    await work.once()
    await becomes(harness, "succeeded")
    await work.once()
    harness.clock.now += 5
    await subscribed(harness, hook, "finished")
    assert hook.took == []
    await becomes(harness, "succeeded")
    await work.once()
    assert len(hook.took) == 1


async def test_alerts_of_own_work_are_told_without_what_others_do(
    harness: ApiHarness, hook: Hook, work: WorkSubscriptions
) -> None:
    await subscribed(harness, hook, "long-pending")
    for rule, subject, state in (
        ("long-pending", "workload/vision/train-1", "firing"),
        ("long-pending", "workload/vision/train-1", "resolved"),
        ("long-pending", "workload/vision/gone", "firing"),
        ("idle-gpu", "workload/vision/train-1", "firing"),
        ("node-lost", "node/n1", "firing"),
    ):
        summary = "Pending for 25 h. It waits for speech/secret."
        work.alerted(AlertOut(rule=rule, subject=subject, state=state, summary=summary))  # type: ignore[arg-type]
    await work.once()
    assert [one["text"] for one in bodies(hook)] == [
        "vision/train-1 has been pending for long.\nPending for 25 h."
    ]


async def test_much_of_one_kind_is_one_message(
    harness: ApiHarness, hook: Hook, work: WorkSubscriptions
) -> None:
    await subscribed(harness, hook, *EVERYTHING)
    for number in range(MOST_EACH + 1):
        await becomes(harness, "succeeded", workload=f"one-{number}")
    await work.once()
    [told] = bodies(hook)
    assert told["text"] == "6 pieces of your work: each has finished."


async def test_a_hook_that_is_down_is_tried_again_and_holds_up_nobody(
    harness: ApiHarness, hook: Hook, work: WorkSubscriptions
) -> None:
    hook.status = 503
    await subscribed(harness, hook, "finished")
    await becomes(harness, "succeeded")
    await work.once()
    shown = (await harness.ask("GET", OWN, "ada")).body
    assert (shown["error"], shown["waiting"]) == ("it answered 503", 1)
    hook.status = 200
    harness.clock.now += 600
    await work.once()
    shown = (await harness.ask("GET", OWN, "ada")).body
    assert (shown["error"], shown["waiting"], len(hook.took)) == ("", 0, 2)


async def test_a_hook_is_kept_to_oneself(harness: ApiHarness) -> None:
    assert (await harness.ask("GET", OWN, "ada")).body["kind"] == ""
    own = {"kind": "slack", "url": f"https://hooks.example.org/{HIDDEN_PATH}", "events": EVERYTHING}
    made = await harness.ask("PUT", OWN, "ada", json=own)
    assert made.body["url"] == "https://hooks.example.org/..."
    assert (await harness.ask("PUT", OWN, "ada", json=own)).status == 200
    assert (await harness.ask("GET", OWN, "bea")).body["kind"] == ""
    assert (await harness.ask("PUT", OWN, "spawner", json=own)).status == 403
    entries = await harness.ask("GET", "/audit", "root")
    assert "work-subscription" in entries.raw.decode().lower()
    for answer in (made, entries, await harness.ask("GET", OWN, "ada")):
        assert HIDDEN_PATH not in answer.raw.decode()
    assert (await harness.ask("DELETE", OWN, "ada")).status == 204
    assert (await harness.ask("DELETE", OWN, "ada")).status == 204, "again is the same"
    assert (await harness.ask("GET", OWN, "ada")).body["kind"] == ""
    assert (await harness.ask("POST", f"{OWN}/test", "ada")).status == 404


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"kind": "slack"}, "url"),
        ({"kind": "slack", "url": "http://hooks.example.org/x"}, "url"),
        ({"kind": "slack", "url": "https://ada:pw@hooks.example.org/x"}, "url"),
        ({"kind": "webhook", "url": "https://127.0.0.1/x"}, "url"),
        ({"kind": "webhook", "url": "https://[::ffff:10.0.0.1]/x"}, "url"),
        ({"kind": "webhook", "url": "https://h/x", "address": "ada@example.org"}, "address"),
        ({"kind": "mail", "address": "ada@example.org"}, "kind"),
        ({"kind": "mail", "address": "ada@example.org\nBcc: eve@h.org"}, "address"),
        ({"kind": "pager"}, "kind"),
        ({"kind": "slack", "url": "https://h/x", "events": ["everything"]}, "events"),
    ],
)
async def test_what_cannot_be_is_refused(
    harness: ApiHarness, fields: dict[str, Any], field: str
) -> None:
    refused = await harness.ask("PUT", OWN, "ada", json={"events": ["failed"]} | fields)
    assert (refused.status, [one.partition(".")[0] for one in refused.fields]) == (422, [field])
    assert "ada:pw" not in str(refused.body)


@pytest.mark.parametrize(
    ("host", "why"),
    [
        ("localhost", "its address is not in the public network"),
        ("2130706433", "it cannot be reached"),
        ("127.1", "it cannot be reached"),
    ],
)
async def test_a_name_that_leads_to_this_machine_is_not_called(
    harness: ApiHarness, hook: Hook, host: str, why: str
) -> None:
    port = hook.server.server_port
    own = {"kind": "slack", "url": f"https://{host}:{port}/x", "events": ["failed"]}
    assert (await harness.ask("PUT", OWN, "ada", json=own)).status == 200
    tried = await harness.ask("POST", f"{OWN}/test", "ada")
    assert (tried.status, tried.code) == (409, "not_delivered")
    assert why in str(tried.body)
    assert hook.took == []
    again = await harness.ask("POST", f"{OWN}/test", "ada")
    assert "try again in 30 s" in str(again.body)


async def test_mail_goes_to_domains_of_the_administrators(
    harness: ApiHarness, work: WorkSubscriptions
) -> None:
    with mailbox() as (url, mails):
        channel = {"kind": "mail", "url": url, "people_domains": ["h.org"]}
        made = await harness.ask("PUT", "/notification-channels/people", "root", json=channel)
        assert (made.status, made.body["people_domains"]) == (200, ["h.org"])
        hooked = channel | {"kind": "slack", "url": "https://h/x"}
        refused = await harness.ask("PUT", "/notification-channels/x", "root", json=hooked)
        assert list(refused.fields) == ["people_domains"]
        own = {"kind": "mail", "address": "ada@elsewhere.org", "events": ["finished"]}
        refused = await harness.ask("PUT", OWN, "ada", json=own)
        assert list(refused.fields) == ["address"]
        right = own | {"address": "Ada@H.org"}
        assert (await harness.ask("PUT", OWN, "ada", json=right)).body["mail_domains"] == ["h.org"]
        assert (await harness.ask("POST", f"{OWN}/test", "ada")).status == 200
        await work.once()
        await becomes(harness, "succeeded")
        await work.once()
        await harness.ask("DELETE", "/notification-channels/people", "root")
        await becomes(harness, "succeeded")
        await work.once()
    assert [one.rcpt_tos for one in mails] == [["Ada@H.org"]] * 2
    assert b"Carrel reaches you here." in mails[0].content
    assert b"Subject: Carrel: vision/train-1 has finished." in mails[1].content
    assert b"https://c/console/jobs/vision/train-1" in mails[1].content
    told = (await harness.ask("GET", OWN, "ada")).body
    assert (told["error"], told["waiting"]) == ("administrators allow no mail to its domain", 1)
