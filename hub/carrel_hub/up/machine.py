"""One run of the machine, from the first check to the last process."""

import asyncio
import contextlib
import signal
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from carrel.client import AsyncClient
from carrel.errors import CarrelError
from carrel_hub.accounts.store import AccountError, Accounts
from carrel_hub.front.traefik import Tls
from carrel_hub.keys import KEYS_FILE, Keys
from carrel_hub.settings import Gpus, Settings
from carrel_hub.up import checks, ending, facts, readiness
from carrel_hub.up.first import NewAccount, first_accounts, first_projects
from carrel_hub.up.listeners import listeners
from carrel_hub.up.lock import only_one
from carrel_hub.up.network import find_network
from carrel_hub.up.parts import Part, all_parts, write_config
from carrel_hub.up.ports import load_or_choose
from carrel_hub.up.public import held_for_us
from carrel_hub.up.screen import Screen
from carrel_hub.up.supervisor import Supervisor
from carrel_hub.up.trouble import Trouble
from carrel_hub.up.watchdog import Watchdog, over_http

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class Wish:
    """What was asked for on the command line, checked for form."""

    state_dir: Path
    host: str
    port: int
    gpus: Gpus
    demo: bool
    database_url: str
    environments: dict[str, str]
    domain: str
    tls: Tls | None
    trusted_proxies: list[str]
    stop_jobs: bool


def run(wish: Wish, screen: Screen) -> None:
    """Start, serve until a signal, stop. Raises ``Trouble``; then nothing is left running."""
    checks.check_distribution()
    checks.check_modules()
    checks.check_proxy()
    checks.prepare_folder(wish.state_dir)
    with only_one(wish.state_dir):
        checks.check_port(wish.host, wish.port)
        settings, keys, new = _prepare(wish, screen)
        config = settings.hub_dir / "jupyterhub_config.py"
        settings_file = settings.hub_dir / "settings.json"
        write_config(settings, settings_file, wish.state_dir / KEYS_FILE, config)
        with listeners(settings.ports) as sockets, held_for_us(wish.domain, wish.port):
            network = find_network(settings)
            parts = all_parts(settings, keys, config, network.told, sockets)
            machine = _Machine(wish, settings, keys, parts, new, screen, network.line)
            asyncio.run(machine.serve())


def _prepare(wish: Wish, screen: Screen) -> tuple[Settings, Keys, list[NewAccount]]:
    """Ports, secrets and accounts: made at the first start, found at the next."""
    hub_dir = wish.state_dir / "hub"
    ports, moved = load_or_choose(hub_dir / "ports.json")
    if moved:
        screen.say("Another program took one of our ports; restart workspaces that run on.")
    settings = Settings(
        state_dir=wish.state_dir,
        host=wish.host,
        port=wish.port,
        ports=ports,
        gpus=wish.gpus,
        database_url=wish.database_url,
        demo=wish.demo,
        managed=False,
        environments=wish.environments,
        domain=wish.domain,
        tls=wish.tls,
        trusted_proxies=wish.trusted_proxies,
    )
    try:
        keys = Keys.load_or_create(wish.state_dir / KEYS_FILE)
        new = first_accounts(Accounts(settings.accounts_file), demo=wish.demo)
    except (msgspec.MsgspecError, OSError, AccountError) as error:
        raise Trouble(f"The state folder {wish.state_dir} is damaged: {error}") from error
    return settings, keys, new


class _Machine:
    """The running parts, and the signal that ends them."""

    def __init__(
        self,
        wish: Wish,
        settings: Settings,
        keys: Keys,
        parts: Sequence[Part],
        new: Sequence[NewAccount],
        screen: Screen,
        network: str,
    ) -> None:
        self.network = network
        self.wish, self.settings, self.keys = wish, settings, keys
        self.parts, self.new, self.screen = parts, new, screen
        self.supervisor = Supervisor(screen.say)
        self.ended = asyncio.Event()

    async def serve(self) -> None:
        """The whole run."""
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self.ended.set)
        client = AsyncClient(self.settings.api_url, self.keys.setup)
        asking = aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True))
        try:
            if await self._unless_ended(self._start(client, asking)):
                await self.ended.wait()
                await self._say_goodbye(client)
            else:
                self.screen.say("Stopped before it was ready.")
        finally:
            await client.close()
            await self.supervisor.stop()
            await asking.close()

    async def _unless_ended(self, work: Coroutine[Any, Any, None]) -> bool:
        """Do the work, or drop it at a signal; says whether it was done."""
        task = asyncio.create_task(work)
        end = asyncio.create_task(self.ended.wait())
        try:
            await asyncio.wait({task, end}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                await task
                return True
            return False
        finally:
            for one in (task, end):
                one.cancel()
            await asyncio.gather(task, end, return_exceptions=True)

    async def _start(self, client: AsyncClient, asking: aiohttp.ClientSession) -> None:
        for part in self.parts:
            await self.supervisor.start(part)
        probes = readiness.probes(self.settings, self.keys)
        for part in self.parts:
            url, headers = probes[part.name]
            with self.screen.step(part.shown):
                await readiness.wait(part, url, headers, self.supervisor)
        try:
            with self.screen.step("Projects and GPUs"):
                nodes = await client.nodes()
                await first_projects(client, facts.total_gpus(nodes), demo=self.wish.demo)
        except CarrelError as error:
            raise Trouble(f"The scheduler could not be set up: {error}") from error
        health = readiness.health(self.settings, self.keys)
        for part in self.parts:
            watchdog = Watchdog(over_http(asking, *health[part.name]))
            self.supervisor.keep_running(part, watchdog)
        self.supervisor.keep_short(self.parts[0], self.settings.access_log)
        gpus, accounts = facts.gpu_line(nodes), facts.account_line()
        self.screen.ready(self.settings, self.new, gpus, accounts, self.network)

    async def _say_goodbye(self, client: AsyncClient) -> None:
        left = await ending.running(client)
        stopped = bool(self.wish.stop_jobs and left)
        if stopped and left:
            with (
                self.screen.step("Stopping workspaces and jobs"),
                contextlib.suppress(CarrelError, TimeoutError),
            ):
                await ending.suspend_all(client, left)
        with self.screen.step("Stopping"):
            await self.supervisor.stop()
        self.screen.say(ending.farewell(left, stopped=stopped))
