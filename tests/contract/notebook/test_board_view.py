"""The view of a TensorBoard in a real browser: its page where cookies reach it, else a link."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from playwright.async_api import Page, Route, expect

from carrel.models import Workload, WorkloadSpec, WorkloadStatus
from carrel.widgets.board import TensorBoardView
from carrel.widgets.job_state import describe
from contract.console.browser import TIMEOUT_MS, chromium, complaints
from contract.notebook.test_view_modules import MODEL

pytestmark = pytest.mark.browser
BOARD = Workload(
    name="board",
    project="vision",
    spec=WorkloadSpec(kind="tensorboard", user="ada"),
    status=WorkloadStatus(phase="running"),
)
LAB = """<!doctype html><html lang="en"><title>Lab</title>
<script id="jupyter-config-data" type="application/json">{"baseUrl": "/user/ada/"}</script>"""


@pytest.fixture
async def page() -> AsyncIterator[Page]:
    """Any host answers: with JupyterLab's page, with what the server says, with a TensorBoard."""
    silent = ["once"]

    async def answer(route: Route) -> None:
        url = route.request.url
        if "/services/gateway/vision/board/" in url:
            await route.fulfill(
                body="<!doctype html><title>B</title>curves", content_type="text/html"
            )
        elif "/carrel/endpoints/vision/board/try" in url:
            assert "data/environment" in str(route.request.post_data)
            status = 503 if silent else 200
            silent.clear()
            await route.fulfill(json={"status": status, "seconds": 0.1, "body": "", "cut": False})
        else:
            await route.fulfill(body=LAB, content_type="text/html")

    async with chromium() as chrome:
        found = await chrome.new_page()
        found.set_default_timeout(TIMEOUT_MS)
        await found.route("**/*", answer)
        yield found


async def show(page: Page, url: str, *, separate_origins: bool) -> list[str]:
    errors = complaints(page)
    await page.goto(url)
    values: dict[str, Any] = {
        "job": describe(BOARD, "running"),
        "address": "/services/gateway/vision/board/",
        "separate_origins": separate_origins,
        "console_url": "",
        "trouble": "",
        "silent_since": 0,
    }
    code = str(TensorBoardView._esm)
    await page.evaluate(f"([code, values]) => ({MODEL})(code, values)", [code, values])
    await expect(page.get_by_role("link", name="Open TensorBoard")).to_be_visible()
    return errors


async def test_the_page_stands_in_the_notebook_once_it_answers(page: Page) -> None:
    errors = await show(page, "https://ada.hub.example.org/user/ada/lab", separate_origins=True)
    inside = page.frame_locator("iframe[title='TensorBoard board']")
    await expect(inside.get_by_text("curves")).to_be_visible()
    assert errors == []


@pytest.mark.parametrize(
    ("host", "separate", "told"), [("ada.localhost", True, 1), ("hub.example.org", False, 0)]
)
async def test_elsewhere_there_is_the_link(
    page: Page, host: str, separate: bool, told: int
) -> None:
    await show(page, f"https://{host}/user/ada/lab", separate_origins=separate)
    assert await page.locator("iframe").count() == 0
    assert await page.get_by_text("Here it opens in a tab").count() == told
