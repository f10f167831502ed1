"""Limits of workspaces with real browsers, kernels and clocks: idle, computing, kept, timed out.

Two workspaces live side by side and the tests follow their clocks, so they build on each other, in
order. They are the mistakes of cullers that trust the traffic: a tab that is open and untouched
polls for ever, a cell that computes without a word sends nothing. The untouched one is kept once,
stopped, and started again to work up to its time limit; the silent one computes all the while.
"""

import os
import re
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest
import requests
from playwright.sync_api import Error, Locator, Page, expect

from carrel import Client
from carrel.errors import Unreachable
from carrel.models import Limits, Workload
from e2e.stack import People, Stack, until

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(900)]

IDLE_SECONDS = 75.0
KEPT_SECONDS = 30.0
TIME_LIMIT_SECONDS = 120.0
SILENT_SECONDS = 270
LATE_SECONDS = 45.0
IDLE_RULE: dict[str, Any] = {
    "idle_timeout_seconds": IDLE_SECONDS,
    "warn_before_seconds": IDLE_SECONDS - 10,
    "extend_seconds": KEPT_SECONDS,
    "max_extensions": 1,
    "apply_to_running": True,
}
# Warned almost at once: the warning stays until the end, however long the tests before it took.
TIME_RULE: dict[str, Any] = IDLE_RULE | {
    "time_limit_seconds": TIME_LIMIT_SECONDS,
    "warn_before_seconds": TIME_LIMIT_SECONDS - 10,
    "max_extensions": 0,
}
SOON: dict[str, Any] = {"idle_timeout_seconds": 20.0}


@dataclass
class OpenWorkspace:
    """Somebody's workspace with the tab that its owner opened."""

    stack: Stack
    client: Client
    user: str
    project: str
    page: Page

    @property
    def workload(self) -> Workload:
        (found,) = self.client.list_workloads(self.project, kind="workspace", user=self.user)
        return found

    @property
    def limits(self) -> Limits:
        limits = self.workload.status.limits
        assert limits is not None
        return limits

    def ask(self) -> None:
        """Ask for it through the form, as everybody does."""
        self.page.goto(f"{self.stack.url}/hub/spawn/{self.user}")
        self.submit()

    def submit(self) -> None:
        """Fill the form in."""
        self.page.select_option("select[name=project]", self.project)
        self.page.fill("input[name=cpu]", "0.3")
        self.page.fill("input[name=memory_gib]", "1")
        self.page.locator("form [type=submit]").last.click()

    def arrive(self) -> None:
        """Wait for JupyterLab, whose page is loaded again where the network failed meanwhile."""
        self.page.wait_for_url(f"**/user/{self.user}/lab**")
        shown = self.page.locator(".jp-LauncherCard, .jp-NotebookPanel").first
        for seconds in (40, 40, 100):
            with suppress(Error):
                shown.wait_for(timeout=1000 * seconds)
                return
            words = self.page.inner_text("body")
            self.page.reload()
        pytest.fail(f"no JupyterLab, but {words[:500]!r}")

    def run(self, code: str) -> None:
        """A cell in a new notebook, and leave it computing."""
        self.page.locator(".jp-LauncherCard[data-category=Notebook]").first.click()
        self.page.wait_for_selector("text=Python 3 (ipykernel) | Idle")
        self.page.locator(".jp-Notebook .jp-Cell .cm-content").first.click()
        self.page.keyboard.type(code)
        self.page.keyboard.press("Shift+Enter")
        self.page.wait_for_selector("text=Python 3 (ipykernel) | Busy")

    def warning(self) -> Locator:
        """The one that stays: for a moment its forerunner can still be seen sliding out."""
        staying = ".Toastify__toast:not([class*=exit])"
        return self.page.locator(staying, has_text="This workspace stops at")

    def stopped(self, seconds: float) -> Workload:
        """Wait for its end."""
        found: Workload = until(
            lambda: (one := self.workload).status.phase == "stopped" and one,
            seconds=seconds,
            why=f"{self.user}'s workspace is stopped",
        )
        return found


@dataclass
class Room:
    """Both that run at once."""

    silent: OpenWorkspace
    untouched: OpenWorkspace


@pytest.fixture(scope="module")
def admin(team: People) -> Client:
    """Who sets the limits."""
    client = team.client("admin")
    client.update_project("vision", {"interactive": IDLE_RULE})
    client.update_project("speech", {"interactive": IDLE_RULE})
    return client


@pytest.fixture(scope="module")
def room(team: People, stack: Stack, admin: Client) -> Room:
    """One computes and its tab is closed, the tab of the other stays open."""

    def workspace(user: str, project: str) -> OpenWorkspace:
        made = OpenWorkspace(stack, admin, user, project, team.page(user))
        made.ask()
        made.arrive()
        return made

    silent = workspace("grace", "speech")
    silent.run(f"import time; time.sleep({SILENT_SECONDS:g})")
    team.leave("grace")
    return Room(silent, workspace("ada", "vision"))


def hub_servers(team: People, user: str) -> dict[str, Any]:
    """The servers that the Hub takes to be running."""
    url, token = f"{team.stack.url}/hub/api/users/{user}", team.token("admin")
    answer = requests.get(url, headers={"Authorization": f"token {token}"}, timeout=60)
    servers: dict[str, Any] = answer.json()["servers"]
    return servers


def answers(client: Client) -> bool:
    """Whether the scheduler is there."""
    try:
        client.list_projects()
    except Unreachable:
        return False
    return True


def ran_seconds(ended: Workload) -> float:
    """How long its last run took."""
    started_at, ended_at = ended.status.started_at, ended.status.ended_at
    assert started_at is not None
    assert ended_at is not None
    return ended_at - started_at


def test_the_owner_of_an_untouched_tab_is_warned_in_jupyterlab(team: People, room: Room) -> None:
    warning = room.untouched.warning()
    expect(warning).to_be_visible(timeout=IDLE_SECONDS * 1000)
    said = r"stops at \d\d:\d\d \(in \d+ (s|min)\): vision allows 1 min without work\."
    expect(warning).to_contain_text(re.compile(said))
    team.shot(room.untouched.page, "limits-warning")


def test_the_button_keeps_a_workspace_as_long_as_the_project_allows(
    team: People, room: Room
) -> None:
    workspace = room.untouched
    before = workspace.limits
    assert (before.extensions, before.may_extend) == (0, True)
    workspace.warning().get_by_role("button", name="Keep for 30 s").click()
    kept = workspace.page.locator(".Toastify__toast", has_text="Kept: this workspace now stops at")
    expect(kept).to_be_visible()
    team.shot(workspace.page, "limits-kept")
    after = workspace.limits
    assert (after.extensions, after.may_extend) == (1, False)
    assert before.stops_at is not None
    assert after.stops_at == pytest.approx(before.stops_at + KEPT_SECONDS, abs=2.0)


def test_a_kept_workspace_is_offered_no_more(room: Room) -> None:
    """Its second warning stays while the time that it was kept runs."""
    warn_at = room.untouched.limits.warn_at
    assert warn_at is not None
    until(lambda: time.time() > warn_at, seconds=IDLE_SECONDS, why="it is time for a warning")
    warning = room.untouched.warning()
    expect(warning).to_be_visible(timeout=IDLE_SECONDS * 1000)
    expect(warning.get_by_role("button", name=re.compile("Keep"))).to_have_count(0)


def test_the_untouched_tab_is_stopped_although_it_polls(
    team: People, stack: Stack, room: Room
) -> None:
    workspace = room.untouched
    assert not workspace.page.is_closed()
    ended = workspace.stopped(IDLE_SECONDS + KEPT_SECONDS + LATE_SECONDS)
    reason = ended.status.reason
    assert reason is not None
    assert reason.token == "Idle"
    assert "`vision`" in reason.sentence
    assert ran_seconds(ended) >= IDLE_SECONDS + KEPT_SECONDS
    until(
        lambda: "" not in hub_servers(team, "ada"), seconds=60, why="the Hub sees that it stopped"
    )
    team.shot(workspace.page, "limits-tab-after-stop")
    workspace.page.goto(f"{stack.url}/user/ada/lab")
    expect(workspace.page.get_by_text("Stopped after")).to_contain_text("vision")
    team.shot(workspace.page, "limits-start-page")
    workspace.page.goto(f"{stack.url}/hub/home")
    expect(workspace.page.get_by_text("Stopped after")).to_contain_text("vision")
    team.shot(workspace.page, "limits-home")


def test_what_a_limit_stopped_can_be_started_again(room: Room, admin: Client) -> None:
    admin.update_project("vision", {"interactive": TIME_RULE})
    workspace = room.untouched
    before = workspace.workload
    workspace.page.locator("#start").click()
    workspace.submit()
    workspace.arrive()
    again = workspace.workload
    assert again.status.phase == "running"
    assert (again.status.started_at or 0.0) > (before.status.ended_at or 0.0)
    workspace.run(f"import time; time.sleep({2 * TIME_LIMIT_SECONDS:g})")


def test_a_killed_scheduler_neither_stops_nor_forgets_anybody(stack: Stack, room: Room) -> None:
    until(
        lambda: room.untouched.limits.stops_because == "TimeLimit",
        seconds=IDLE_SECONDS,
        why="it is known to compute",
    )
    silent, limited = room.silent.workload, room.untouched.workload
    stops_at = room.untouched.limits.stops_at
    assert stops_at is not None
    assert silent.status.started_at is not None
    assert time.time() - silent.status.started_at > IDLE_SECONDS
    old = stack.scheduler_pid()
    assert old > 1
    os.kill(old, signal.SIGKILL)
    until(lambda: stack.scheduler_pid() not in (0, old), seconds=60, why="the Hub starts it again")
    until(lambda: answers(room.silent.client), seconds=60, why="it answers again")
    for workspace, before in ((room.silent, silent), (room.untouched, limited)):
        after = workspace.workload
        assert (after.uid, after.status.phase) == (before.uid, "running")
        assert after.status.tasks == before.status.tasks
        assert after.status.started_at == before.status.started_at
    assert room.untouched.limits.stops_at == pytest.approx(stops_at, abs=1.0)


def test_a_silent_cell_counts_as_work(room: Room, admin: Client) -> None:
    running = room.silent.workload.status
    assert running.phase == "running"
    assert running.started_at is not None
    assert time.time() - running.started_at > 1.5 * IDLE_SECONDS
    admin.update_project("speech", {"interactive": SOON})


def test_who_works_is_warned_and_stopped_at_the_time_limit(team: People, room: Room) -> None:
    workspace = room.untouched
    expect(workspace.warning()).to_be_visible(timeout=TIME_LIMIT_SECONDS * 1000)
    expect(workspace.warning()).to_contain_text("time limit of vision")
    expect(workspace.warning().get_by_role("button", name=re.compile("Keep"))).to_have_count(0)
    team.shot(workspace.page, "limits-time-warning")
    ended = workspace.stopped(TIME_LIMIT_SECONDS + LATE_SECONDS)
    reason = ended.status.reason
    assert reason is not None
    assert reason.token == "TimedOut"
    assert "`vision`" in reason.sentence
    assert TIME_LIMIT_SECONDS <= ran_seconds(ended) < TIME_LIMIT_SECONDS + LATE_SECONDS


def test_a_workspace_is_idle_once_its_silent_cell_has_ended(room: Room) -> None:
    ended = room.silent.stopped(SILENT_SECONDS + IDLE_SECONDS)
    assert ended.status.reason is not None
    assert ended.status.reason.token == "Idle"
    assert "`speech`" in ended.status.reason.sentence
    assert ran_seconds(ended) >= SILENT_SECONDS + SOON["idle_timeout_seconds"]
