"""A real browser without a screen."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from playwright.async_api import Browser, ConsoleMessage, Page, async_playwright, expect

TIMEOUT_MS = 90_000

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
)
NAMES = ("chromium", "chromium-browser", "google-chrome")


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """Chromium of this machine; fails when there is none."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    assert found, "the browser tests need Chromium (see tests/install-browser.sh)"
    expect.set_options(timeout=TIMEOUT_MS)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=found, args=list(FLAGS))
        try:
            yield browser
        finally:
            await browser.close()


def complaints(page: Page) -> list[str]:
    """Collect the errors of the page's scripts and the refusals of its policy from now on."""
    found: list[str] = []

    def told(message: ConsoleMessage) -> None:
        if message.type == "error":
            found.append(message.text)

    page.on("console", told)
    page.on("pageerror", lambda error: found.append(str(error)))
    return found
