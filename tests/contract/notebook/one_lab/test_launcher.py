"""The launcher of a real JupyterLab: kinds of work at a glance, the web console, the tutorial."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from contract.notebook.lab import Lab

pytestmark = pytest.mark.browser
TUTORIAL = "carrel-tutorial.ipynb"


@pytest.fixture(scope="module")
def page(browser: Browser, lab: Lab) -> Iterator[Page]:
    """The launcher as JupyterLab shows it first."""
    context = browser.new_context(viewport={"width": 1280, "height": 1000})
    opened = context.new_page()
    opened.set_default_timeout(60_000)
    opened.goto(lab.page())
    yield opened
    context.close()


def test_kinds_of_work_come_before_consoles_and_none_looks_like_another(page: Page) -> None:
    titles = page.locator(".jp-Launcher-sectionTitle")
    expect(titles.nth(1)).to_have_text("Carrel")
    section = page.locator(".jp-Launcher-section").nth(1)
    cards = section.locator(".jp-LauncherCard")
    expect(cards).to_have_count(8)
    pictures = cards.locator("svg").evaluate_all("all => all.map(one => one.innerHTML)")
    assert len(set(pictures)) == 8
    with page.expect_popup() as console:
        section.locator(".jp-LauncherCard", has_text="Web console").click()
    assert re.search(r"/services/\w+/$", console.value.url)
    console.value.close()


def test_the_tutorial_opens_and_stays_what_its_reader_made_of_it(page: Page, lab: Lab) -> None:
    page.locator(".jp-LauncherCard", has_text="Tutorial").click()
    expect(page.locator(".jp-NotebookPanel .jp-Cell").first).to_be_visible()
    # A server that is told to end while a kernel starts waits a minute for it.
    while lab.kernel_states() != ["idle"]:
        page.wait_for_timeout(100)
    copy = lab.folder / TUTORIAL
    changed = copy.read_text().replace("Carrel", "Our Carrel", 1)
    copy.write_text(changed)
    assert lab.ask("carrel/tutorial", "POST", {}) == {"path": TUTORIAL}
    assert copy.read_text() == changed
