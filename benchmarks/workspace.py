"""Click to usable Lab, warm: how long a person looks at a page that is not yet JupyterLab.

A real Chromium clicks Start and waits until JupyterLab's shell stands there: menus, file browser
and launcher drawn, the splash gone. On plain JupyterHub the click is the one on its home page, on
Carrel the one on the filled-in start form; both are followed by the Hub's page of progress, the
sign-in of the new server and JupyterLab itself. The peer's ``SimpleLocalProcessSpawner`` runs the
same JupyterLab with the same Python behind the same proxy program, as whoever runs the benchmark;
Carrel's runs under an account of the user's own, as it always does. The sides take turns; each has
a browser of its own, whose cache the first, unmeasured start has filled.

``python -m benchmarks.workspace [--json] [--runs 7]``
"""

import argparse
import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
from playwright.async_api import Browser, Page, Playwright, async_playwright
from rich.console import Console

from benchmarks.hub import stop
from benchmarks.report import Figure, median, show
from benchmarks.stacks import PASSWORD, CarrelStack, Stack

USER = "ada"
GOAL = 0.6
TIMEOUT_MS = 120_000
CHROMIUM = tuple(
    f"/usr/bin/{name}"
    for name in ("chromium", "chromium-browser", "google-chrome", "chromium-headless-shell")
)
FLAGS = ["--disable-gpu", "--no-first-run", "--no-sandbox", "--disable-background-networking"]
SHELL = (
    "#jp-MainMenu .lm-MenuBar-item >> nth=0",
    "#filebrowser .jp-DirListing-content",
    ".jp-Launcher .jp-LauncherCard >> nth=0",
)


@dataclass
class Side:
    """One of the two products, with a browser that has signed in."""

    stack: Stack
    page: Page
    session: aiohttp.ClientSession
    seconds: list[float] = field(default_factory=list)

    async def sign_in(self) -> None:
        """The Hub's login form."""
        await self.page.goto(f"{self.stack.url}/hub/login")
        await self.page.fill("input[name=username]", USER)
        await self.page.fill("input[name=password]", PASSWORD)
        await self.page.locator("form [type=submit]").first.click()
        await self.page.wait_for_url("**/hub/home")

    async def once(self) -> float:
        """Start a workspace once, from the click to the shell; it is stopped again."""
        if isinstance(self.stack, CarrelStack):
            await self.page.goto(f"{self.stack.url}/hub/spawn/{USER}")
            button = self.page.locator("#spawn_form button[type=submit]")
        else:
            await self.page.goto(f"{self.stack.url}/hub/home")
            button = self.page.locator("a#start")
        await button.wait_for()
        await self.page.wait_for_load_state("networkidle")
        began = time.perf_counter()
        await button.click(no_wait_after=True)
        for selector in SHELL:
            await self.page.wait_for_selector(selector)
        await self.page.wait_for_selector("#jupyterlab-splash", state="detached")
        took = time.perf_counter() - began
        await self._leave()
        return took

    async def _leave(self) -> None:
        """Away from JupyterLab, so that its page asks nothing of a server that is gone."""
        await self.page.goto("about:blank")
        await stop(self.session, USER)


@contextlib.asynccontextmanager
async def side(stack: Stack, browser: Browser) -> AsyncIterator[Side]:
    """A stack that runs, and somebody who has signed in."""
    async with stack, stack.session() as session:
        context = await browser.new_context(viewport={"width": 1380, "height": 900})
        page = await context.new_page()
        page.set_default_timeout(TIMEOUT_MS)
        one = Side(stack, page, session)
        await one.sign_in()
        try:
            yield one
        finally:
            await context.close()


async def browse(playwright: Playwright) -> Browser:
    """A real Chromium. Raises ``RuntimeError`` when there is none."""
    path = next((name for name in CHROMIUM if Path(name).exists()), None)
    if path is None:
        raise RuntimeError("no Chromium: `make test` installs it, or apt install chromium")
    return await playwright.chromium.launch(executable_path=path, args=FLAGS)


async def measure(runs: int) -> tuple[list[float], list[float]]:
    """Seconds of ours and of the peer's, in turns, after one start each that does not count."""
    async with async_playwright() as playwright:
        browser = await browse(playwright)
        async with (
            side(Stack(people=[USER]), browser) as bare,
            side(CarrelStack(people=[USER]), browser) as ours,
        ):
            for one in (bare, ours):
                await one.once()
            for _ in range(runs):
                for one in (bare, ours):
                    one.seconds.append(await one.once())
                    Console().print(
                        f"{one.stack.name}: {one.seconds[-1]:.2f} s, load {os.getloadavg()[0]:.1f}"
                    )
        await browser.close()
    return ours.seconds, bare.seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--runs", type=int, default=7)
    given = parser.parse_args()
    ours, bare = asyncio.run(measure(given.runs))
    share = median(ours) / median(bare)
    found = [
        Figure(
            "click to usable Lab, warm, of plain JupyterHub's",
            share,
            f"(ours {median(ours):.2f} s, bare {median(bare):.2f} s)",
            f"<= {GOAL}",
            share <= GOAL,
        )
    ]
    show("Click to usable Lab", found, as_json=given.json)


if __name__ == "__main__":
    main()
