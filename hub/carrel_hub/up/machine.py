"""A run of ``carrel up``, from the first check to the last process."""

import asyncio
import contextlib
import signal
from collections.abc import Coroutine, Sequence
from typing import Any, Final

import aiohttp
import msgspec

from carrel.client import AsyncClient
from carrel.errors import CarrelError
from carrel.models import HOLDING, Workload
from carrel_hub.accounts.store import AccountError, AccountStore
from carrel_hub.front.traefik import INTERNAL
from carrel_hub.keys import KEYS_FILE, Keys
from carrel_hub.settings import InstallationSettings
from carrel_hub.up import checks, probes
from carrel_hub.up.bootstrap import NewAccount, first_accounts, first_projects
from carrel_hub.up.checks import StartupError
from carrel_hub.up.network import find_network
from carrel_hub.up.options import Options
from carrel_hub.up.parts import ProcessPart, all_parts, write_config
from carrel_hub.up.ports import Gate, hold_ipv6_loopback, listeners, load_or_choose
from carrel_hub.up.screen import Screen, account_line, gpu_line, stop_summary
from carrel_hub.up.supervisor import Supervisor
from carrel_spawner.watch import wait_at_rest

SLACK_SECONDS: Final = 10.0
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run(options: Options, screen: Screen) -> None:
    """Start, serve until a signal, stop. Raises ``StartupError``; then nothing is left running."""
    checks.check_distribution()
    checks.check_modules()
    checks.check_proxy()
    checks.prepare_folder(options.state_dir)
    with checks.only_one(options.state_dir):
        checks.check_port(options.host, options.port)
        settings, keys, new = _prepare(options, screen)
        config = settings.hub_dir / "jupyterhub_config.py"
        settings_file = settings.hub_dir / "settings.json"
        write_config(settings, settings_file, options.state_dir / KEYS_FILE, config)
        with listeners(settings) as sockets, hold_ipv6_loopback(options.domain, options.port):
            network = find_network(settings)
            parts = all_parts(settings, keys, config, network.told, sockets)
            machine = _Machine(options, settings, keys, parts, new, screen, network.line)
            asyncio.run(machine.serve())


def _prepare(
    options: Options, screen: Screen
) -> tuple[InstallationSettings, Keys, list[NewAccount]]:
    """Ports, secrets and accounts: made at the first start, found at the next."""
    hub_dir = options.state_dir / "hub"
    ports, moved = load_or_choose(hub_dir / "ports.json")
    if moved:
        screen.say("Another program took one of our ports; restart workspaces that run on.")
    settings = InstallationSettings(
        state_dir=options.state_dir,
        host=options.host,
        port=options.port,
        ports=ports,
        gpus=options.gpus,
        database_url=options.database_url,
        demo=options.demo,
        managed=False,
        environments=options.environments,
        domain=options.domain,
        tls=options.tls,
        trusted_proxies=options.trusted_proxies,
        request_seconds=options.request_seconds,
        sign_in=options.sign_in,
    )
    try:
        keys = Keys.load_or_create(options.state_dir / KEYS_FILE)
        accounts = AccountStore(settings.accounts_file)
        new = [] if options.sign_in else first_accounts(accounts, demo=options.demo)
    except (msgspec.MsgspecError, OSError, AccountError) as error:
        raise StartupError(f"The state folder {options.state_dir} is damaged: {error}") from error
    return settings, keys, new


class _Machine:
    """The running parts, and the signal that ends them."""

    def __init__(
        self,
        options: Options,
        settings: InstallationSettings,
        keys: Keys,
        parts: Sequence[ProcessPart],
        new: Sequence[NewAccount],
        screen: Screen,
        network: str,
    ) -> None:
        self.network = network
        self.options, self.settings, self.keys = options, settings, keys
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
                await self._shut_down(client)
            else:
                self.screen.say("Stopped before it was ready.")
        finally:
            await client.close()
            await self.supervisor.stop()
            await asking.close()

    async def _unless_ended(self, work: Coroutine[Any, Any, None]) -> bool:
        """Await the work, or cancel it at a signal; returns whether it was done."""
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
        proxy = self.parts[0]
        visited = [one for name, one in proxy.listeners.items() if name != INTERNAL]
        has_routes = probes.routes_loaded(asking, self.settings)
        self.supervisor.add_gate(proxy, Gate(visited, has_routes))
        for part in self.parts:
            await self.supervisor.start(part)
        ready = probes.readiness(self.settings, self.keys)
        for part in self.parts:
            url, headers = ready[part.name]
            with self.screen.step(part.shown):
                await probes.until_ready(part, url, headers, self.supervisor.check)
        try:
            with self.screen.step("Projects and GPUs"):
                nodes = await client.nodes()
                await first_projects(
                    client, sum(node.gpu_milli for node in nodes) / 1000, demo=self.options.demo
                )
        except CarrelError as error:
            raise StartupError(f"The scheduler could not be set up: {error}") from error
        live = probes.liveness(self.settings, self.keys)
        for part in self.parts:
            watchdog = probes.Watchdog(probes.over_http(asking, *live[part.name]))
            self.supervisor.keep_running(part, watchdog)
        self.supervisor.rotate_log(proxy, self.settings.access_log)
        gpus, accounts = gpu_line(nodes), account_line()
        self.screen.ready(self.settings, self.new, gpus, accounts, self.network)

    async def _shut_down(self, client: AsyncClient) -> None:
        left = await running(client)
        stopped = bool(self.options.stop_jobs and left)
        if stopped and left:
            with (
                self.screen.step("Stopping workspaces and jobs"),
                contextlib.suppress(CarrelError, TimeoutError),
            ):
                await suspend_all(client, left)
        with self.screen.step("Stopping"):
            await self.supervisor.stop()
        self.screen.say(stop_summary(left, stopped=stopped))


async def running(client: AsyncClient) -> list[Workload] | None:
    """The work that holds resources; ``None`` if the scheduler does not answer."""
    try:
        async with asyncio.timeout(5):
            return await client.list_workloads(phases=sorted(HOLDING))
    except (CarrelError, TimeoutError):
        return None


async def suspend_all(client: AsyncClient, workloads: Sequence[Workload]) -> None:
    """Suspend them and wait for their ends, as long as the longest grace period."""
    await asyncio.gather(*(_suspend(client, workload) for workload in workloads))


async def _suspend(client: AsyncClient, workload: Workload) -> None:
    await client.suspend(workload.project, workload.name)
    seconds = workload.spec.grace_seconds + SLACK_SECONDS
    await wait_at_rest(client, workload.project, workload.name, seconds)
