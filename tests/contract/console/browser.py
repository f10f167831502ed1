"""A real browser without a screen."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from playwright.async_api import Browser, ConsoleMessage, Page, async_playwright, expect

from contract.chromium import FLAGS, program

TIMEOUT_MS = 90_000


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """Chromium of this machine; fails when there is none."""
    expect.set_options(timeout=TIMEOUT_MS)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=program(), args=FLAGS)
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
