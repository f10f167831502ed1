"""A real JupyterHub and proxy in front of the fake scheduler, and people who sign in.

Built from the same parts as ``carrel up``, so what is tested is what runs.
"""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self
from urllib.error import URLError

import aiohttp
import msgspec
from yarl import URL

from benchmarks.ports import free_ports
from carrel.testing import FakeScheduler
from carrel_hub.accounts.store import AccountStore
from carrel_hub.keys import Keys
from carrel_hub.settings import InstallationSettings, Ports
from carrel_hub.up.parts import all_parts, write_config
from contract.hub.runner import Runner

TIMEOUT_SECONDS = 180.0
PASSWORD = "correct-horse-battery"
PROBE = Path(__file__).with_name("probe_console.py")
QUICK = """
c.CarrelSpawner.settle_seconds = 0.1
c.CarrelSpawner.poll_interval = 1
c.CarrelSpawner.believed_seconds = 2
c.JupyterHub.tornado_settings["slow_spawn_timeout"] = 60
"""


class Stack:
    """Fake scheduler, runner, proxy, Hub. Use as a context manager."""

    def __init__(self, folder: Path, people: Mapping[str, list[str]]) -> None:
        self.folder, self.people = folder, people
        self.fake = FakeScheduler(people, admins=["spawner", "setup", "gateway"], tcp=True)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        self.fake.__enter__()
        try:
            self._set_up()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self._processes):
            self.stop(name)
        if hasattr(self, "runner"):
            self.runner.stop()
        self.fake.__exit__(None, None, None)

    def _set_up(self) -> None:
        scheduler = int(self.fake.url.split(":")[2].split("/")[0])
        hub, proxy_api, console, gateway, public = free_ports(5)
        ports = Ports(
            hub=hub, proxy_api=proxy_api, scheduler=scheduler, console=console, gateway=gateway
        )
        self.settings = InstallationSettings(
            state_dir=self.folder, port=public, ports=ports, managed=False
        )
        for folder in (self.settings.hub_dir, self.settings.log_dir):
            folder.mkdir(parents=True)
        made = Keys.generate()
        self.keys = msgspec.structs.replace(
            made,
            spawner=self.fake.token("spawner"),
            setup=self.fake.token("setup"),
            gateway=self.fake.token("gateway"),
        )
        keys_file = self.folder / "keys.json"
        keys_file.write_bytes(msgspec.json.encode(self.keys))
        accounts = AccountStore(self.settings.accounts_file)
        for name, projects in self.people.items():
            accounts.add(name, PASSWORD, admin=name == "admin", joins=projects)
        config = self.settings.hub_dir / "config.py"
        self.write_config(config, keys_file)
        parts = all_parts(self.settings, self.keys, config)
        self.parts = {part.name: part for part in parts}
        self.begin_running()
        for name in ("proxy", "console", "hub"):
            self.start(name)
        self.wait_for_hub()

    def write_config(self, config: Path, keys_file: Path) -> None:
        """The Hub's configuration."""
        write_config(self.settings, self.settings.hub_dir / "settings.json", keys_file, config)
        config.write_text(config.read_text() + QUICK)

    def begin_running(self) -> None:
        """Start the runner of workspaces."""
        self.runner = Runner(self.fake, self.folder / "homes")
        self.runner.start()

    def start(self, name: str) -> None:
        """Start a part."""
        part = self.parts[name]
        command = [sys.executable, str(PROBE)] if name == "console" else list(part.command)
        with part.log.open("ab") as log:
            self._processes[name] = subprocess.Popen(
                command, env=dict(part.environment), cwd=self.folder, stdout=log, stderr=log
            )

    def stop(self, name: str, number: signal.Signals = signal.SIGTERM) -> None:
        """Stop a part and wait for its end."""
        process = self._processes.pop(name)
        process.send_signal(number)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(60)

    def restart_hub(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Stop the Hub, start it again, wait for it."""
        self.stop("hub", number)
        self.start("hub")
        self.wait_for_hub()

    def wait_for_hub(self) -> None:
        """Wait until the Hub answers through the proxy, which also knows the routes of services."""

        def answers() -> bool:
            if self._processes["hub"].poll() is not None:
                raise AssertionError(self.parts["hub"].log.read_text()[-4000:])
            try:
                with urllib.request.urlopen(f"{self.url}/hub/api/", timeout=20) as answer:
                    if answer.status != 200:
                        return False
                with urllib.request.urlopen(f"{self.url}/services/console/", timeout=20) as answer:
                    return bool(answer.status == 200)
            except (URLError, OSError):
                return False

        wait_until(answers, TIMEOUT_SECONDS, "the Hub")

    @property
    def url(self) -> str:
        """The public address."""
        return self.settings.public_url

    def log(self, name: str) -> str:
        """The log of a part."""
        return self.parts[name].log.read_text()


class Person:
    """A person with a browser: cookies, forms, and the Hub's API."""

    def __init__(self, stack: Stack, session: aiohttp.ClientSession, name: str) -> None:
        self.stack, self.session, self.name = stack, session, name

    async def sign_in(self, password: str = PASSWORD) -> int:
        """The Hub's login form; returns the status."""
        await self.get("/hub/login")
        fields = {"username": self.name, "password": password, "_xsrf": self.xsrf()}
        async with self.session.post(f"{self.stack.url}/hub/login", data=fields) as answer:
            return answer.status

    def xsrf(self) -> str:
        """The Hub's cross-site token of this browser."""
        cookies = self.session.cookie_jar.filter_cookies(URL(f"{self.stack.url}/hub/"))
        return cookies["_xsrf"].value

    async def get(self, path: str) -> tuple[int, str]:
        """A page."""
        async with self.session.get(self.stack.url + path) as answer:
            return answer.status, await answer.text()

    async def post(self, path: str, fields: Mapping[str, Any]) -> tuple[int, str, str]:
        """A form; returns status, text and where it led."""
        data = {key: str(value) for key, value in fields.items()} | {"_xsrf": self.xsrf()}
        async with self.session.post(self.stack.url + path, data=data) as answer:
            return answer.status, await answer.text(), str(answer.url)

    async def api(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """The Hub's API, as the Hub's own pages call it."""
        url = f"{self.stack.url}/hub/api{path}"
        headers = {"Referer": f"{self.stack.url}/hub/home"}
        async with self.session.request(
            method, url, json=body, params={"_xsrf": self.xsrf()}, headers=headers
        ) as answer:
            text = await answer.text()
            return answer.status, json.loads(text) if text.startswith(("{", "[")) else text

    async def start(self, server: str = "", **options: Any) -> int:
        """Start a workspace by the API; returns the status of the answer."""
        path = f"/users/{self.name}/servers/{server}"
        status, _ = await self.api("POST", path, {"user_options": options or None})
        return status

    async def server(self, server: str = "") -> dict[str, Any]:
        """The Hub's model of a server; empty when there is none."""
        _, user = await self.api("GET", f"/users/{self.name}")
        found: dict[str, Any] = user["servers"].get(server, {})
        return found

    async def until_ready(
        self, server: str = "", seconds: float = TIMEOUT_SECONDS
    ) -> dict[str, Any]:
        """Wait until the Hub calls the workspace ready."""
        return await self.until(server, lambda model: bool(model.get("ready")), seconds)

    async def until_stopped(self, server: str = "", seconds: float = TIMEOUT_SECONDS) -> None:
        """Wait until the Hub has no such running workspace."""
        await self.until(server, lambda model: not model.get("started"), seconds)

    async def until(
        self,
        server: str,
        condition: Callable[[dict[str, Any]], bool],
        seconds: float = TIMEOUT_SECONDS,
    ) -> dict[str, Any]:
        """Wait for something in the Hub's model of a server."""
        async with asyncio.timeout(seconds):
            while True:
                model = await self.server(server)
                if condition(model):
                    return model
                await asyncio.sleep(0.1)

    async def get_once_there(self, path: str) -> tuple[int, str]:
        """Ask for a page until the proxy leads to somebody who answers."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while True:
                found = await self.get(path)
                if found[0] not in (502, 503):
                    return found
                await asyncio.sleep(0.05)

    async def inside(self, server: str = "") -> dict[str, str]:
        """The environment of the stub that runs as the workspace."""
        path = f"/user/{self.name}/{server}/x" if server else f"/user/{self.name}/x"
        _, text = await self.get(path)
        environment: dict[str, str] = json.loads(text)["environment"]
        return environment

    async def progress(self, server: str = "") -> list[dict[str, Any]]:
        """The events of the progress page, to its end."""
        part = f"servers/{server}" if server else "server"
        url = f"{self.stack.url}/hub/api/users/{self.name}/{part}/progress"
        async with self.session.get(url, params={"_xsrf": self.xsrf()}) as answer:
            text = await answer.text()
        return [json.loads(line) for line in re.findall(r"^data: (.*)$", text, re.MULTILINE)]


@asynccontextmanager
async def person(stack: Stack, name: str) -> AsyncIterator[Person]:
    """A person who is signed in."""
    jar = aiohttp.CookieJar(unsafe=True)
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
    async with aiohttp.ClientSession(cookie_jar=jar, timeout=timeout) as session:
        somebody = Person(stack, session, name)
        assert await somebody.sign_in() == 200
        yield somebody


async def until(
    condition: Callable[[], bool], seconds: float = TIMEOUT_SECONDS, what: str = "it"
) -> None:
    """Wait for a condition without holding up the event loop."""
    await asyncio.to_thread(wait_until, condition, seconds, what)


def wait_until(condition: Callable[[], bool], seconds: float, what: str) -> None:
    """Wait for a condition, with a bound."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"{what} did not come within {seconds} s")
        time.sleep(0.05)


def token_model(stack: Stack, token: str) -> dict[str, Any]:
    """The model of a token's owner, as the Hub gives it to a service."""
    request = urllib.request.Request(
        f"{stack.settings.hub_url}/hub/api/user", headers={"Authorization": f"token {token}"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        model: dict[str, Any] = json.load(answer)
    return model


os.environ.setdefault("NO_PROXY", "127.0.0.1")


@asynccontextmanager
async def browser(stack: Stack, name: str, address: str = "127.0.0.1") -> AsyncIterator[Person]:
    """Somebody who is not signed in, at an address of their own."""
    jar = aiohttp.CookieJar(unsafe=True)
    connector = aiohttp.TCPConnector(local_addr=(address, 0))
    async with aiohttp.ClientSession(cookie_jar=jar, connector=connector) as session:
        yield Person(stack, session, name)


async def signed_in(somebody: Person) -> bool:
    """Whether the Hub's home page opens."""
    _, page = await somebody.get("/hub/home")
    return 'name="password"' not in page
