"""A new user's first steps in a real browser: a training, a typo, and the same corrected.

The tests of this module build on each other, in order. The last one walks the pages that then
have something to show, in light on a screen and in the dark on a phone.
"""

import os
import re
import signal
from collections.abc import Callable
from importlib import resources
from typing import Any

import pytest
from playwright.sync_api import Page, ViewportSize, expect

from carrel import Client
from carrel_schema.governance.health import HealthCheck
from e2e.stack import People, Stack, until

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(1800)]

CONSOLE = "/services/console/"
TRAIN = """%%train first --gpus 1
import time
import carrel

for step in range(40):
    carrel.report(step=step + 1, total=40, loss=1 / (step + 1))
    print("step", step, flush=True)
    time.sleep(0.5)
"""
TICKS = """import time

for number in range(100):
    print("tick", number, flush=True)
    time.sleep(0.25)
"over"
"""
TYPO = TRAIN.replace("first", "typo").replace("range(40)", "rang(40)")
KINDS: dict[str, dict[str, Any]] = {
    "walked": {"command": ["python", "-c", "prin()"], "gpus": 1},
    "search": {
        "kind": "experiment",
        "command": ["true"],
        "experiment": {
            "metric": "loss",
            "completions": 2,
            "parameters": {"x": {"type": "float", "low": 0.0, "high": 1.0}},
        },
    },
    "curves": {"kind": "tensorboard", "tensorboard": {"jobs": ["walked"]}},
    "then": {"command": ["true"], "after": [{"name": "walked", "condition": "any"}]},
    "pair": {"kind": "distributed", "tasks": 2, "command": ["sleep", "60"]},
}
LOOKS = {
    "light": ViewportSize(width=1280, height=900),
    "dark": ViewportSize(width=390, height=844),
}
# A page hears of another look before it is drawn next.
LOOK = "new Promise(requestAnimationFrame).then(() => axe.run({resultTypes: ['violations']}))"
ADAS = (
    "/hub/home",
    "/hub/token",
    "/hub/password",
    "/hub/sign-in",
    "/hub/nothing-is-here",
    CONSOLE,
    f"{CONSOLE}policies",
    f"{CONSOLE}usage",
    f"{CONSOLE}usage?by=kind&days=1",
    f"{CONSOLE}secrets",
    f"{CONSOLE}assets/edit?type=data-source",
    f"{CONSOLE}access",
    f"{CONSOLE}alerts",
    f"{CONSOLE}analytics",
    f"{CONSOLE}templates/edit",
    f"{CONSOLE}notifications",
    f"{CONSOLE}nothing-is-here",
    f"{CONSOLE}catalogue",
    *(f"{CONSOLE}jobs/vision/{name}" for name in ("walked", "search", "curves", "pair", "then")),
)
ADMINS = (
    f"{CONSOLE}access",
    f"{CONSOLE}alerts",
    f"{CONSOLE}health",
    f"{CONSOLE}retention",
    f"{CONSOLE}new-department",
    f"{CONSOLE}people",
    f"{CONSOLE}directory-groups",
    "/hub/admin",
    f"{CONSOLE}policies/edit",
    f"{CONSOLE}audit?verify=1",
    f"{CONSOLE}reference",
)
"""What the console's tests with a browser do not show."""


@pytest.fixture(scope="module")
def ada(team: People, stack: Stack) -> Client:
    return team.client("ada")


@pytest.fixture(scope="module")
def lab(team: People, stack: Stack) -> Page:
    """Her workspace, started from the form as it comes."""
    page = team.page("ada")
    page.goto(f"{stack.url}/hub/spawn")
    team.shot(page, "researcher-form")
    page.locator("form [type=submit]").last.click()
    page.wait_for_url("**/lab**")
    page.wait_for_selector(".jp-DirListing-item >> text=carrel-demo.ipynb")
    team.shot(page, "researcher-lab")
    page.locator(".jp-LauncherCard", has_text="Python 3").first.click()
    page.wait_for_selector("text=Python 3 (ipykernel) | Idle")
    return page


def run(page: Page, text: str) -> None:
    """Type a cell at the end of the notebook and run it."""
    page.keyboard.press("Escape")
    cells = page.locator(".jp-Notebook .jp-CodeCell")
    before = cells.count()
    cells.last.locator(".jp-InputArea-editor").click()
    page.keyboard.insert_text(text)
    page.keyboard.press("Shift+Enter")
    until(lambda: cells.count() > before, seconds=60, why="the next cell is there")


def phase(ada: Client, name: str) -> str:
    found = [one.status.phase for one in ada.list_workloads("vision") if one.name == name]
    return found[0] if found else ""


def comes(ada: Client, name: str, *wanted: str) -> Callable[[], bool]:
    return lambda: phase(ada, name) in wanted


def test_her_first_cell_trains_and_is_watched(lab: Page, team: People, ada: Client) -> None:
    run(lab, "%load_ext carrel")
    run(lab, TRAIN)
    expect(lab.locator(".carrel-view").last).to_contain_text("Running")
    team.shot(lab, "researcher-train")
    until(
        lambda: "1 running" in lab.locator(".carrel-queue").inner_text(),
        seconds=60,
        why="the status bar counts it",
    )
    assert phase(ada, "first") == "running"


def test_the_status_bar_and_quota_agree_within_two_seconds(lab: Page, ada: Client) -> None:
    def told() -> str:
        return lab.locator(".carrel-status").get_attribute("aria-label") or ""

    ada.create_workload(
        {"project": "vision", "name": "more", "gpus": 1, "command": ["sleep", "600"]}
    )
    until(comes(ada, "more", "running"), seconds=60, why="it runs")
    held = f"{ada.get_project('vision').use.gpus_allocated:g} of 2 guaranteed"
    # In proportion where processes wait for the machine's processors.
    seconds = 2.0 * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
    until(lambda: held in told(), seconds=seconds, every=0.1, why="the status bar follows")
    ada.delete_workload("vision", "more")


def test_a_typo_fails_at_once_with_its_exception_and_is_run_again_corrected(
    lab: Page, team: People, stack: Stack, ada: Client
) -> None:
    run(lab, TYPO)
    until(comes(ada, "typo", "failed"), seconds=60, why="it fails")
    expect(lab.locator(".carrel-view").last).to_contain_text("NameError")
    assert ada.get_workload("vision", "typo").status.attempt == 0
    page = team.page("ada")
    page.goto(f"{stack.url}{CONSOLE}jobs/vision/typo")
    expect(page.locator("#state .notice")).to_contain_text("NameError: name 'rang' is not defined")
    team.shot(page, "researcher-typo")
    page.get_by_role("link", name="Edit and run again").click()
    page.fill("#command", "python -c \"print('corrected')\"")
    page.fill("#name", "corrected")
    team.shot(page, "researcher-edit")
    page.get_by_role("button", name="Submit").click()
    page.wait_for_url("**/jobs/vision/corrected")
    expect(page.locator("#state")).to_contain_text("succeeded")
    expect(page.locator("#log")).to_contain_text("corrected")
    page.close()


def test_a_cell_and_a_view_go_on_while_the_hub_starts_again(
    lab: Page, team: People, stack: Stack, ada: Client
) -> None:
    run(lab, TRAIN.replace("first", "third").replace("range(40)", "range(100_000)"))
    until(comes(ada, "third", "running"), seconds=60, why="it runs")
    view = lab.locator(".carrel-view").last
    run(lab, TICKS)
    ticks = lab.locator(".jp-OutputArea", has_text="tick 0").last
    expect(ticks).to_contain_text("tick 9")
    hub, seen = stack.hub_pid(), ticks.inner_text().count("tick")
    os.kill(hub, signal.SIGKILL)
    until(lambda: stack.hub_pid() not in (0, hub), seconds=60, why="the Hub is started again")
    until(lambda: ticks.inner_text().count("tick") > seen + 20, seconds=60, why="the cell goes on")
    expect(lab.locator(".jp-Dialog")).to_have_count(0)
    expect(lab.locator(".jp-OutputArea-executeResult", has_text="over")).to_be_visible()
    whole = re.findall(r"tick (\d+)", ticks.inner_text())
    assert whole == [str(number) for number in range(100)]  # nothing lost, nothing twice
    ada.delete_workload("vision", "third")
    expect(view).not_to_contain_text("Running")
    lab.close()


def test_administrators_read_that_all_parts_answer(team: People, stack: Stack) -> None:
    admin = team.client("admin")

    def answering() -> dict[str, HealthCheck]:
        found = {one.name: one for one in admin.health().checks}
        return found if found["parts"].summary == "Answering: Hub, proxy, gateway." else {}

    # The Hub was killed by the test before, and parts are asked now and then only.
    checks = until(answering, seconds=120, every=2, why="all parts answer")
    assert "its last decision was" in checks["scheduler"].summary
    others = {one.state for name, one in checks.items() if name not in ("ledger", "nodes")}
    assert others == {"ok"}


def test_every_page_is_accessible_and_fits(team: People, stack: Stack, ada: Client) -> None:
    for name, work in KINDS.items():
        ada.create_workload({"project": "vision", "name": name, **work})
    axe = (resources.files("axe_playwright_python") / "axe.min.js").read_text()
    found: list[str] = []
    pages = {"ada": ADAS, "grace": ("/hub/spawn",), "admin": ADMINS}
    for user, paths in pages.items():
        page = team.page(user)
        for path in paths:
            page.goto(f"{stack.url}{path}")
            page.locator("h1").first.wait_for(state="attached")
            page.evaluate(axe)
            for look, size in LOOKS.items():
                page.emulate_media(
                    color_scheme="light" if look == "light" else "dark", reduced_motion="reduce"
                )
                page.set_viewport_size(size)
                found += _violations(page, look)
                team.shot(page, f"page-{user}{path.replace('/', '-').replace('?', '-')}-{look}")
        page.close()
    assert found == []


def _violations(page: Page, look: str) -> list[str]:
    told = page.evaluate(LOOK)
    wide = page.evaluate(
        "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )
    return [
        f"{page.url} {look}: {one['id']} {node['target']} {node['failureSummary']}"
        for one in told["violations"]
        for node in one["nodes"]
    ] + ([f"{page.url} {look}: {wide} px too wide"] if wide > 0 else [])
