"""A real JupyterLab in a real browser: the status bar, the warning, the views and their buttons.

All on one page, which sees the limits of its workspace change.

With ``CARREL_SCREENSHOTS`` naming a folder, what was seen is kept there.
"""

import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from carrel.testing import FakeScheduler
from contract.notebook.lab import Lab, write_notebook

pytestmark = pytest.mark.browser
SECONDS = 1000
TRAIN = """%%train --gpus 1 --name digits --to job
import time
time.sleep(60)"""
BUSY = "import time; time.sleep(600)"


@pytest.fixture(scope="module")
def page(browser: Browser, lab: Lab) -> Iterator[Page]:
    """A fresh profile; errors in the page's code fail the test."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    opened, errors = context.new_page(), []
    opened.set_default_timeout(60 * SECONDS)
    # JupyterLab gives its own stylesheets a second and a half, and says so over everything.
    slow = opened.get_by_role("dialog").filter(has_text="Error Loading Theme")
    opened.add_locator_handler(slow, lambda box: box.get_by_role("button").first.click())
    opened.on("pageerror", lambda error: errors.append(str(error)))
    yield opened
    context.close()
    for kernel in lab.ask("api/kernels"):
        lab.ask(f"api/kernels/{kernel['id']}", "DELETE")
    assert errors == []


def keep(page: Page, name: str) -> None:
    folder = os.environ.get("CARREL_SCREENSHOTS")
    if folder:
        page.wait_for_timeout(800)  # let what slides in arrive
        page.screenshot(path=Path(folder) / f"{name}.png")


def until(true: Callable[[], Any], what: str, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"{what} did not happen in {seconds} s"
        time.sleep(0.05)


def limits(scheduler: FakeScheduler, seconds: float | None, because: str = "TimeLimit") -> None:
    """This workspace stops in so many seconds, or not at all."""
    at = None if seconds is None else time.time() + seconds
    warn = None if at is None else at - 600
    scheduler.status(
        "vision",
        "desk",
        limits={"stops_at": at, "stops_because": because, "warn_at": warn, "may_extend": True},
    )


def told(lab: Lab) -> dict[str, Any]:
    """The limits that the extension has heard of."""
    found: dict[str, Any] = lab.ask("carrel/limits")["limits"] or {}
    return found


def shown_limits(lab: Lab, stops: bool) -> None:
    """The extension has heard of it with its next heartbeat."""
    until(lambda: (told(lab).get("stops_at") is not None) is stops, "news of the limits")


def test_status_bar_and_warning(lab: Lab, scheduler: FakeScheduler, page: Page) -> None:
    limits(scheduler, 42 * 60 + 55)
    shown_limits(lab, stops=True)
    lost: set[str] = set()

    def lose_two_tries(route: Route) -> None:
        folder = route.request.url.split("/")[-2]
        if folder == "try2":
            route.continue_()
        else:
            lost.add(folder)
            route.abort()

    page.route(re.compile(r"/carrel/static/.*/server\.js"), lose_two_tries)
    page.goto(lab.page())
    status = page.locator(".carrel-status")
    expect(status).to_contain_text(re.compile("Stops in 4[12] min: time limit of vision"))
    quota = re.compile("4 of 4 guaranteed · 1 borrowed · 2 pending")
    expect(status).to_have_attribute("title", quota)
    expect(page.locator(".Toastify__toast")).to_have_count(0)
    keep(page, "status-calm")
    assert len(lost) == 2  # the network may fail for seconds, for a module that others import
    assert "try1" in lost


def test_warning_extends(lab: Lab, scheduler: FakeScheduler, page: Page) -> None:
    limits(scheduler, 9 * 60 + 30)
    until(lambda: 0 < (told(lab).get("stops_at") or 0.0) < time.time() + 600, "the limit")
    toast = page.locator(".Toastify__toast", has_text=": time limit of vision")
    expect(toast).to_be_visible(timeout=30 * SECONDS)
    expect(page.locator(".carrel-status")).to_have_attribute("data-level", "warn")
    keep(page, "warning")
    toast.get_by_role("button", name="Keep for 1 h").click()
    expect(page.locator(".Toastify__toast", has_text="Kept")).to_be_visible()
    expect(page.locator(".carrel-status")).to_have_attribute("data-level", "calm")
    keep(page, "kept")
    assert ("POST", "/workloads/vision/desk/extend") in scheduler.requests


def test_last_minute_is_loud(lab: Lab, scheduler: FakeScheduler, page: Page) -> None:
    limits(scheduler, 55, because="Idle")
    until(lambda: told(lab).get("stops_because") == "Idle", "the limit")
    expect(page.locator(".carrel-status")).to_have_attribute("data-level", "last")
    toast = page.locator(".Toastify__toast--error")
    expect(toast).to_contain_text("Run a cell or save a file to keep it.")
    assert "…" not in toast.inner_text()
    keep(page, "last-minute")
    limits(scheduler, 0, because="Idle")
    over = page.locator(".Toastify__toast", has_text="This workspace stops now")
    expect(over).to_be_visible(timeout=30 * SECONDS)
    expect(over.get_by_role("button", name="Keep for 1 h")).to_have_count(0)
    limits(scheduler, None)
    shown_limits(lab, stops=False)


def test_job_view(lab: Lab, scheduler: FakeScheduler, page: Page) -> None:
    write_notebook(lab.folder, "train.ipynb", TRAIN, "%jobs", "%quota", BUSY)
    page.goto(lab.page("lab/tree/train.ipynb"))
    run_cell(page, 0)
    view = page.locator(".carrel-job")
    expect(view).to_contain_text("Pending")
    scheduler.wait("vision", "digits", "Waiting for 1 GPU: `speech` holds 2.")
    expect(view).to_contain_text("Waiting for 1 GPU: speech holds 2.")
    scheduler.run("vision", "digits", devices=[1])
    scheduler.log("vision", "digits", "loading digits", "epoch 1 of 40")
    for step in range(1, 13):
        scheduler.report(
            "vision", "digits", step=step, done=step, total=40, rate=0.5, unit="epoch",
            checkpoint_step=step, metrics={"loss": 2.3 / step, "accuracy": 1 - 0.9 / step},
        )  # fmt: skip
    expect(view.locator(".carrel-state")).to_contain_text("Running")
    expect(view).to_contain_text("12 of 40 epochs")
    expect(view.locator(".carrel-figure")).to_have_count(2)
    expect(view.locator(".carrel-lines")).to_contain_text("epoch 1 of 40")
    run_cell(page, 1)
    run_cell(page, 2)
    expect(page.locator(".carrel-table")).to_contain_text("digits")
    expect(page.locator(".carrel-quota-words")).to_have_text(
        "4 of 4 guaranteed · 1 borrowed · 2 pending"
    )
    keep(page, "job-view")
    _buttons_work_while_the_kernel_is_busy(page, scheduler)


def _buttons_work_while_the_kernel_is_busy(page: Page, scheduler: FakeScheduler) -> None:
    run_cell(page, 3)
    view = page.locator(".carrel-job")
    expect(page.locator(".jp-InputPrompt", has_text="[*]")).to_have_count(1)
    view.get_by_role("button", name="Suspend").click()
    until(
        lambda: ("POST", "/workloads/vision/digits/suspend") in scheduler.requests, "the suspension"
    )
    expect(view.locator(".carrel-state")).to_contain_text("Stopped")
    view.get_by_role("button", name="Resume").click()
    expect(view.locator(".carrel-state")).to_contain_text("Pending")
    view.get_by_role("button", name="Cancel").click()
    view.get_by_role("button", name="Cancel digits and its checkpoints").click()
    expect(view.locator(".carrel-state")).to_contain_text("Cancelled")
    keep(page, "cancelled")
    assert ("DELETE", "/workloads/vision/digits") in scheduler.requests


def run_cell(page: Page, index: int) -> None:
    """Click into a cell and run it, once the page has a kernel to run it in."""
    idle = page.get_by_role("button", name="Python 3 (ipykernel) | Idle")
    expect(idle.first).to_be_visible(timeout=90 * SECONDS)
    cell = page.locator(".jp-Notebook .jp-CodeCell").nth(index)
    cell.locator(".jp-InputArea-editor").click()
    page.keyboard.press("Control+Enter")
    expect(cell.locator(".jp-InputArea-prompt")).not_to_have_text("[ ]:")
