"""The whole product as a user starts it: ``carrel up --demo`` in a state folder of its own."""

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from benchmarks.ports import free_port
from carrel import Client
from carrel_scheduler.engines.local.network.addressing import InstallationNetwork, installation_of
from carrel_scheduler.engines.local.network.namespaces import NetworkNamespaces
from contract.chromium import FLAGS, program
from contract.hub.stack import Person

START_SECONDS = 300.0
END_SECONDS = 180.0
TIMEOUT_MS = 180_000


def until(what: Callable[[], Any], *, seconds: float, every: float = 0.5, why: str = "") -> Any:
    """The first true value of ``what``; raises ``AssertionError`` after ``seconds``."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = what()
        if found:
            return found
        time.sleep(every)
    raise AssertionError(f"not within {seconds:g} s: {why or what}")


def shots() -> Path | None:
    """The folder of screenshots, if one is asked for."""
    folder = os.environ.get("CARREL_SHOTS")
    if folder is None:
        return None
    Path(folder).mkdir(parents=True, exist_ok=True)
    return Path(folder)


@dataclass
class Stack:
    """A running ``carrel up``."""

    state_dir: Path
    shots: Path | None = field(default_factory=shots)
    arguments: tuple[str, ...] = ("--demo",)
    port: int = field(default_factory=free_port)
    passwords: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The public URL."""
        return f"http://localhost:{self.port}"

    @property
    def output(self) -> str:
        """Its output so far."""
        return (self.state_dir.parent / "up.log").read_text()

    def start(self) -> None:
        """Start and wait until it says that it is ready."""
        with (self.state_dir.parent / "up.log").open("wb") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "carrel_hub.up", *self.arguments),
                    *("--state-dir", str(self.state_dir), "--port", str(self.port)),
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, "COLUMNS": "100"},
            )
        until(self._said_ready, seconds=START_SECONDS, why="carrel up gets ready")
        printed = re.compile(r"^\s+(\w+)\s+(\S{4}(?:-\S{4})+)\s", re.MULTILINE)
        for user, password in printed.findall(self.output):
            self.passwords[user] = password

    def _said_ready(self) -> bool:
        if self.process is not None and self.process.poll() is not None:
            raise AssertionError(f"carrel up ended:\n{self.output}")
        return "Stop with Ctrl-C" in self.output

    def stop(self, *, jobs: bool = False) -> None:
        """Ctrl-C; with ``jobs``, SIGKILL for it and for all that would go on without it."""
        if jobs:
            until(lambda: not self._killed(), seconds=END_SECONDS, every=0.1, why="all have ended")
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGINT)
            self.process.wait(END_SECONDS)
        if jobs:
            networks = NetworkNamespaces(
                InstallationNetwork(installation=installation_of(self.state_dir), ports=())
            )
            networks.keep(())
            networks.close()

    def _killed(self) -> int:
        """Kill what is there; how many that were.

        Every process of this stack names its state folder, which no other process knows.
        """
        mark, count = str(self.state_dir).encode(), 0
        for proc in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                text = (proc / "environ").read_bytes() + (proc / "cmdline").read_bytes()
                if mark in text and int(proc.name) != os.getpid():
                    os.kill(int(proc.name), signal.SIGKILL)
                    count += 1
        return count

    def scheduler_pid(self) -> int:
        """The process of this stack's scheduler service; 0 while there is none."""
        for proc in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                ours = f"CARREL_STATE_DIR={self.state_dir}\0".encode() in (
                    (proc / "environ").read_bytes()
                )
                if ours and b"carrel_scheduler.service" in (proc / "cmdline").read_bytes():
                    return int(proc.name)
        return 0

    def hub_pid(self) -> int:
        """The process of this stack's Hub; 0 while there is none."""
        for proc in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                words = (proc / "cmdline").read_bytes()
                if b"carrel_hub.hub_process" in words and f"{self.state_dir}/".encode() in words:
                    return int(proc.name)
        return 0

    def token(self, user: str) -> str:
        """A token that this person makes on the Hub's own API, signed in without a browser."""
        return asyncio.run(self._made_token(user))

    async def _made_token(self, user: str) -> str:
        jar = aiohttp.CookieJar(unsafe=True)
        async with aiohttp.ClientSession(cookie_jar=jar) as session:
            place: Any = self
            somebody = Person(place, session, user)
            assert await somebody.sign_in(self.passwords[user]) == 200
            _, made = await somebody.api("POST", f"/users/{user}/tokens", {"note": "test"})
            return str(made["token"])

    def client(self, token: str) -> Client:
        """The scheduler as the owner of a token sees it."""
        return Client(f"{self.url}/services/carrel", token)


@contextlib.contextmanager
def running_stack(state: Path) -> Iterator[Stack]:
    """``carrel up --demo`` with a state folder, ended with everything that it started."""
    stack = Stack(state)
    try:
        stack.start()
        yield stack
    finally:
        stack.stop(jobs=True)


class People:
    """Browsers of several people on one stack."""

    def __init__(self, stack: Stack, browser: Browser) -> None:
        self.stack = stack
        self._browser = browser
        self._contexts: dict[str, BrowserContext] = {}
        self._tokens: dict[str, str] = {}

    def page(self, user: str) -> Page:
        """A new tab of that person, signed in."""
        return self._signed_in(user).new_page()

    def leave(self, user: str) -> None:
        """Close that person's browser."""
        self._contexts.pop(user).close()

    def token(self, user: str) -> str:
        """A token made on the Hub's own API with the person's cookie."""
        if user not in self._tokens:
            self._tokens[user] = token_of(self._signed_in(user), self.stack.url, user)
        return self._tokens[user]

    def client(self, user: str) -> Client:
        """The scheduler as that person sees it."""
        return self.stack.client(self.token(user))

    def shot(self, page: Page, name: str) -> None:
        """A picture, if somebody wants to look at it."""
        picture(page, self.stack.shots, name)

    def sign_in(self, user: str) -> None:
        """Sign in by the form on the page."""
        page = self._open(user).new_page()
        page.goto(f"{self.stack.url}/hub/login")
        page.fill("input[name=username]", user)
        page.fill("input[name=password]", self.stack.passwords[user])
        page.locator("form [type=submit]").first.click()
        page.wait_for_url("**/hub/home")
        page.close()

    def _signed_in(self, user: str) -> BrowserContext:
        """The browser of a person who is signed in without showing the form."""
        if user not in self._contexts:
            context, login = self._open(user), f"{self.stack.url}/hub/login"
            context.request.get(login)
            fields: dict[str, str | float | bool] = {
                "username": user,
                "password": self.stack.passwords[user],
                "_xsrf": _xsrf(context, self.stack.url),
            }
            answer = context.request.post(login, form=fields)
            assert answer.url.endswith("/hub/home"), answer.text()
        return self._contexts[user]

    def _open(self, user: str) -> BrowserContext:
        context = self._browser.new_context(viewport={"width": 1380, "height": 900})
        context.set_default_timeout(TIMEOUT_MS)
        self._contexts[user] = context
        return context


def token_of(context: BrowserContext, url: str, user: str) -> str:
    """A token made on the Hub's own API with a browser's cookies."""
    answer = context.request.post(
        f"{url}/hub/api/users/{user}/tokens?_xsrf={_xsrf(context, url)}", data={"note": "test"}
    )
    assert answer.status == 201, answer.text()
    return str(answer.json()["token"])


def _xsrf(context: BrowserContext, url: str) -> str:
    """The token that the Hub's forms and API want back."""
    cookies = context.cookies(f"{url}/hub/")
    return next(one.get("value", "") for one in cookies if one.get("name") == "_xsrf")


def picture(page: Page, folder: Path | None, name: str) -> None:
    """Save a screenshot, if one is asked for."""
    if folder is not None:
        page.screenshot(path=str(folder / f"{name}.png"))


@contextlib.contextmanager
def people(stack: Stack) -> Iterator[People]:
    """A browser for the people of a stack."""
    expect.set_options(timeout=TIMEOUT_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program(), args=FLAGS)
        yield People(stack, browser)
        browser.close()
