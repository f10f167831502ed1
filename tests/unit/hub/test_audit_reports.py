"""Reports of sign-ins wait for the scheduler, and failed ones are counted."""

from pathlib import Path
from typing import Any

from carrel.errors import ApiError, Unreachable
from carrel_hub.accounts.audit_reports import MOST_KEYS, AuditReports
from carrel_hub.accounts.store import AccountStore


class Scheduler:
    """Takes reports, unless there is something to raise."""

    def __init__(self) -> None:
        self.got: list[dict[str, Any]] = []
        self.trouble: Exception | None = None

    async def add_audit_events(self, items: list[dict[str, Any]]) -> None:
        if self.trouble is not None:
            raise self.trouble
        self.got += [dict(one) for one in items]


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


async def test_reports_wait_while_the_scheduler_is_down_and_keep_their_times() -> None:
    scheduler, clock = Scheduler(), Clock()
    reports = AuditReports(lambda: scheduler, clock)
    scheduler.trouble = Unreachable("down")
    reports.add("sign-in", "ada", user="ada", address="10.0.0.1", agent="")
    await reports.send()
    clock.now += 3600
    scheduler.trouble = ApiError(503)
    reports.add("sign-out", "ada", user="ada")
    await reports.send()
    scheduler.trouble = None
    await reports.send()
    await reports.send()
    assert scheduler.got == [
        {"at": 1000.0, "verb": "sign-in", "name": "ada", "user": "ada", "address": "10.0.0.1"},
        {"at": 4600.0, "verb": "sign-out", "name": "ada", "user": "ada"},
    ]


async def test_what_the_command_changed_is_kept_until_the_audit_log_has_it(tmp_path: Path) -> None:
    path, scheduler, clock = tmp_path / "accounts.json", Scheduler(), Clock()
    command = AccountStore(path, actor="account root for ada", clock=clock)
    command.add("bob", "a long password", joins=["vision"])
    clock.now += 5
    command.set_admin("bob", admin=True)
    command.set_password("bob", "another long one")
    command.remove("bob")
    AccountStore(path).add("eve", "a long password")  # the API tells of those itself
    scheduler.trouble = Unreachable("down")
    await AuditReports(lambda: scheduler, clock, AccountStore(path)).send()
    scheduler.trouble = None
    reports = AuditReports(lambda: scheduler, clock, AccountStore(path))  # the Hub began anew
    await reports.send()
    await reports.send()
    assert {one["user"] for one in scheduler.got} == {"account root for ada"}
    assert [
        (one["at"], one["verb"], one["name"], one["before"], one["after"]) for one in scheduler.got
    ] == [
        (1000.0, "create", "bob", {}, {"joins": ["vision"], "password": "(hidden)"}),
        (1005.0, "update", "bob", {}, {"admin": True}),
        (1005.0, "update", "bob", {"password": "(hidden)"}, {"password": "(hidden)"}),
        (
            1005.0,
            "delete",
            "bob",
            {"admin": True, "joins": ["vision"], "password": "(hidden)"},
            {},
        ),
    ]
    assert "long" not in str(scheduler.got)
    assert not AccountStore(path).changes()


async def test_failed_sign_ins_are_counted_and_bounded() -> None:
    scheduler, clock = Scheduler(), Clock()
    reports = AuditReports(lambda: scheduler, clock)
    for number in range(1000):
        reports.refused("", "wrong_password", address=f"10.0.{number}", agent="")
    for _ in range(20):
        reports.refused("ada", "wrong_password", address="10.0.0", agent="")
    await reports.send()
    assert len(scheduler.got) == MOST_KEYS + 1
    assert sum(one["count"] for one in scheduler.got) == 1020
    assert all(one["outcome"] == "refused" for one in scheduler.got)
    reports.refused("ada", "wrong_password", address="10.0.0", agent="")
    await reports.send()
    assert len(scheduler.got) == MOST_KEYS + 1
    clock.now += 60
    await reports.send()
    assert scheduler.got[-1]["name"] == "ada"


async def test_what_is_refused_for_good_does_not_stop_what_follows() -> None:
    scheduler, clock = Scheduler(), Clock()
    reports = AuditReports(lambda: scheduler, clock)
    reports.add("sign-in", "ada", user="ada")
    scheduler.trouble = ApiError(422)
    await reports.send()
    scheduler.trouble = None
    reports.add("sign-in", "grace", user="grace")
    await reports.send()
    assert [one["name"] for one in scheduler.got] == ["grace"]
