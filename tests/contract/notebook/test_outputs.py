"""Nothing that a cell shows is lost: pages that end, come back, and are open twice."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from carrel.testing import FakeScheduler
from contract.notebook.conftest import TIMEOUT_MS
from contract.notebook.lab import Lab, write_notebook

pytestmark = pytest.mark.browser

WORK = """import os, sys, time
from IPython.display import Markdown, display
shown = display(Markdown("early"), display_id=True)
for name in ("first", "second"):
    print("waits for", name)
    while not os.path.exists("{name}-" + name):
        print(".", end="\\r")
        time.sleep(0.1)
shown.update(Markdown("**late**"))
print("over", file=sys.stderr)
6 * 7"""


@contextmanager
def opened(browser: Browser, lab: Lab, name: str) -> Iterator[Page]:
    """A page of a browser of its own; errors in its code fail the test."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page, errors = context.new_page(), []
    page.set_default_timeout(TIMEOUT_MS)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(lab.page(f"lab/tree/{name}.ipynb"))
    expect(cell(page, 0)).to_be_visible()
    yield page
    context.close()  # as a browser that is killed: nothing of the page runs any more
    assert errors == []


def cell(page: Page, index: int) -> Locator:
    return page.locator(".jp-Notebook .jp-CodeCell").nth(index)


def output(page: Page, index: int = 0) -> Locator:
    return cell(page, index).locator(".jp-OutputArea")


def run(page: Page, index: int = 0) -> None:
    idle = page.get_by_role("button", name="Python 3 (ipykernel) | Idle")
    expect(idle.first).to_be_visible()
    cell(page, index).locator(".jp-InputArea-editor").click()
    page.keyboard.press("Control+Enter")


def go(lab: Lab, name: str, signal: str) -> None:
    (lab.folder / f"{name}-{signal}").touch()


def saved(lab: Lab, name: str) -> dict[str, Any]:
    """The first cell as the file has it."""
    written = (lab.folder / f"{name}.ipynb").read_text()
    found: dict[str, Any] = json.loads(written or '{"cells": [{}]}')["cells"][0]
    return found


def text_of(found: dict[str, Any]) -> str:
    return json.dumps(found.get("outputs"))


def until(true: Callable[[], Any], what: str, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"{what} did not happen in {seconds} s"
        time.sleep(0.05)


def everything(page: Page) -> None:
    """All that the cell shows is there, once, and it is done."""
    expect(output(page)).to_contain_text("waits for first")
    expect(output(page)).to_contain_text("waits for second")
    expect(output(page)).to_contain_text("over")
    expect(output(page).locator("strong")).to_have_text("late")
    expect(output(page).locator(".jp-OutputArea-executeResult")).to_contain_text("42")
    expect(cell(page, 0).locator(".jp-InputArea-prompt")).to_have_text("[1]:")
    assert output(page).inner_text().count("waits for first") == 1
    assert "early" not in output(page).inner_text()


def saves_without_a_question(page: Page, lab: Lab, name: str) -> None:
    """The server's own writing is nobody's change: no dialog asks what should become of it."""
    cell(page, 1).locator(".jp-InputArea-editor").click()
    page.keyboard.type("# edited")
    page.keyboard.press("Control+s")
    path = lab.folder / f"{name}.ipynb"
    until(lambda: "# edited" in path.read_text(), "the page is saved")
    assert page.get_by_role("dialog").count() == 0
    assert "waits for second" in path.read_text()


def test_a_cell_goes_on_without_a_page(browser: Browser, lab: Lab) -> None:
    write_notebook(lab.folder, "away.ipynb", WORK.replace("{name}", "away"), "")
    with opened(browser, lab, "away") as page:
        run(page)
        expect(output(page)).to_contain_text("waits for first")
    until(lambda: "waits for first" in text_of(saved(lab, "away")), "the server writes the file")
    go(lab, "away", "first")
    go(lab, "away", "second")
    until(lambda: saved(lab, "away").get("execution_count") == 1, "the file has its number")
    until(lambda: '"42"' in text_of(saved(lab, "away")), "the file has its value")
    with opened(browser, lab, "away") as page:
        everything(page)
        saves_without_a_question(page, lab, "away")


def test_a_page_that_comes_back_shows_what_goes_on(browser: Browser, lab: Lab) -> None:
    write_notebook(lab.folder, "back.ipynb", WORK.replace("{name}", "back"), "")
    with opened(browser, lab, "back") as page:
        run(page)
        expect(output(page)).to_contain_text("waits for first")
    go(lab, "back", "first")
    with opened(browser, lab, "back") as page:
        expect(output(page)).to_contain_text("waits for second")
        expect(cell(page, 0).locator(".jp-InputArea-prompt")).to_have_text("[*]:")
        go(lab, "back", "second")
        everything(page)
        saves_without_a_question(page, lab, "back")


def test_two_pages_show_the_same(browser: Browser, lab: Lab) -> None:
    write_notebook(lab.folder, "twice.ipynb", WORK.replace("{name}", "twice"), "")
    with opened(browser, lab, "twice") as second:
        with opened(browser, lab, "twice") as first:
            run(first)
            expect(output(second)).to_contain_text("waits for first")
            expect(cell(second, 0).locator(".jp-InputArea-prompt")).to_have_text("[*]:")
            go(lab, "twice", "first")
            expect(output(second)).to_contain_text("waits for second")
        go(lab, "twice", "second")
        everything(second)
        saves_without_a_question(second, lab, "twice")


def test_views_live_on(browser: Browser, lab: Lab, scheduler: FakeScheduler) -> None:
    train = "%%train --gpus 1 --name lasting\nimport time"
    sweep = "%%sweep --name wide --param lr=0.1,0.2 --completions 2\nlr"
    write_notebook(lab.folder, "views.ipynb", train, sweep)
    with opened(browser, lab, "views") as page:
        run(page, 0)
        expect(page.get_by_role("region", name="Training lasting")).to_contain_text("Pending")
        run(page, 1)
        expect(page.get_by_role("region", name="Experiment wide")).to_be_visible()
    scheduler.run("vision", "lasting")
    begin_trials(scheduler)
    with opened(browser, lab, "views") as page:
        view = page.get_by_role("region", name="Training lasting")
        expect(view).to_contain_text("Running")
        scheduler.log("vision", "lasting", "epoch 1")
        expect(view).to_contain_text("epoch 1")
        scheduler.finish("vision", "lasting")
        expect(view).to_contain_text("Succeeded")
        view = page.get_by_role("region", name="Experiment wide")
        expect(view).to_contain_text("2 running")
        scheduler.report("vision", "wide-0", step=1, metrics={"objective": 0.5})
        scheduler.finish("vision", "wide-0")
        expect(view).to_contain_text("1 completed")


def begin_trials(scheduler: FakeScheduler) -> None:
    """Both trials of the sweep run."""
    owner = scheduler.workload("vision", "wide")["uid"]
    scheduler.status("vision", "wide", phase="running", started_at=time.time())
    for number, rate in enumerate((0.1, 0.2)):
        trial = {"number": number, "parameters": {"lr": rate}}
        part = {"kind": "trial", "owner": owner, "part": number, "trial": trial}
        scheduler.submit("vision", f"wide-{number}", **part)
        scheduler.run("vision", f"wide-{number}")


def test_what_runs_while_the_server_stops_is_in_the_file(lab: Lab, browser: Browser) -> None:
    """Last of this module: it stops the server, with the page still open."""
    write_notebook(lab.folder, "stop.ipynb", WORK.replace("{name}", "stop"), "")
    with opened(browser, lab, "stop") as page:
        run(page)
        expect(output(page)).to_contain_text("waits for first")
        assert "waits for first" not in text_of(saved(lab, "stop"))
        lab.ask("api/shutdown", "POST")
        until(lambda: "waits for first" in text_of(saved(lab, "stop")), "the file has it")
        assert lab.process.wait(60) == 0
