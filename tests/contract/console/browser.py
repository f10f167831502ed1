"""A real browser without a screen."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from playwright.async_api import (
    Browser,
    ConsoleMessage,
    Error,
    Page,
    async_playwright,
    expect,
)

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


async def visit(page: Page, url: str) -> None:
    """Open an address, again if the machine's networks change at that moment.

    Chromium gives all requests up then, and other tests make and remove networks of jobs.
    """
    for repeat in range(5):
        try:
            await page.goto(url)
        except Error as error:
            if "ERR_NETWORK_CHANGED" not in error.message or repeat == 4:
                raise
        else:
            return


def complaints(page: Page) -> list[str]:
    """Collect the errors of the page's scripts and the refusals of its policy from now on."""
    found: list[str] = []

    def told(message: ConsoleMessage) -> None:
        if message.type == "error":
            found.append(message.text)

    page.on("console", told)
    page.on("pageerror", lambda error: found.append(str(error)))
    return found
