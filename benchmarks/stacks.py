"""A Carrel and a plain JupyterHub, started in the same way, so that one can be held to the other.

Both get the same Python, the same proxy program, the same database engine and the same environment
of their Hub, because both are made of the parts of ``carrel up`` (``all_parts``); the plain one
leaves out the scheduler and the console, and its configuration knows nothing of Carrel. A service
``bench`` with the same rights on both sides makes users and starts servers.
"""

import asyncio
import dataclasses
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

import aiohttp
import psutil
from typing_extensions import override

from carrel.client import AsyncClient
from carrel_hub.accounts.store import AccountStore
from carrel_hub.front import traefik
from carrel_hub.keys import Keys
from carrel_hub.product import hashed
from carrel_hub.settings import Gpus, InstallationSettings, Ports
from carrel_hub.up.network import find_network
from carrel_hub.up.parts import ProcessPart, all_parts, write_config, write_traefik
from carrel_scheduler.engines.local.network import setup
from carrel_scheduler.engines.local.network.addressing import InstallationNetwork, installation_of

PROJECT = "load"
PASSWORD = "correct-horse-battery"  # noqa: S105 - of accounts that live as long as the benchmark
READY_SECONDS = 90.0
REPOSITORY = Path(__file__).resolve().parent.parent

BENCH = """
c.JupyterHub.trust_user_provided_tokens = True
c.JupyterHub.services = [*{services}, {{"name": "bench", "api_token": {token!r}}}]
c.JupyterHub.load_roles = [*{roles}, {{
    "name": "bench",
    "scopes": ["admin:users", "admin:servers", "admin:groups"],
    "services": ["bench"],
}}]
"""
PLAIN = """
from jupyterhub.spawner import SimpleLocalProcessSpawner

c.JupyterHub.bind_url = "{public}/"
c.JupyterHub.hub_bind_url = "{hub}"
c.JupyterHub.db_url = "sqlite:///{folder}/hub/jupyterhub.sqlite"
c.JupyterHub.cleanup_servers = False
c.JupyterHub.cleanup_proxy = False
c.JupyterHub.proxy_class = "traefik_file"
c.TraefikFileProviderProxy.should_start = False
c.TraefikFileProviderProxy.traefik_entrypoint = {entry!r}
c.TraefikFileProviderProxy.traefik_api_entrypoint = {api_entry!r}
c.TraefikFileProviderProxy.traefik_api_url = "http://127.0.0.1:{proxy_api}"
c.TraefikFileProviderProxy.traefik_api_username = "hub"
c.TraefikFileProviderProxy.traefik_api_password = {proxy_token!r}
c.TraefikFileProviderProxy.traefik_api_hashed_password = {proxy_hash!r}
c.TraefikFileProviderProxy.dynamic_config_file = "{routes}/rules.toml"
c.JupyterHub.authenticator_class = "dummy"
c.DummyAuthenticator.password = {password!r}
c.Authenticator.allow_all = True
c.JupyterHub.default_url = "/hub/home"
c.JupyterHub.spawner_class = SimpleLocalProcessSpawner
c.SimpleLocalProcessSpawner.home_dir_template = "{folder}/homes/{{username}}"
c.Spawner.cmd = [{python!r}, "-m", "jupyterhub.singleuser"]
c.Spawner.args = {arguments!r}
c.Spawner.environment = {{"JUPYTER_CONFIG_PATH": "{folder}/jupyter"}}
c.Spawner.start_timeout = 600
c.Spawner.http_timeout = 60
"""
# The same Python has Carrel installed; a plain workspace does without it.
WITHOUT_CARREL = {
    "jupyter_server_config.json": (
        '{"ServerApp": {"jpserver_extensions": {"carrel.workspace": false}}}'
    ),
    "labconfig/page_config.json": '{"disabledExtensions": {"carrel": true}}',
}


class Stack:
    """Hub and proxy in a folder of their own; use as an asynchronous context manager.

    Args:
        people: accounts that can sign in with ``PASSWORD``; others are made by ``add_users``.
        extra: lines at the end of the Hub's configuration.
    """

    name = "plain JupyterHub"
    wanted: Sequence[str] = ("proxy", "hub")

    def __init__(self, people: Sequence[str] = (), extra: str = "") -> None:
        self.people, self.extra = people, extra
        self.folder = Path(tempfile.mkdtemp(prefix="carrel-bench-", dir="/var/tmp"))
        hub, proxy_api, scheduler, console, gateway, public = free_ports(6)
        ports = Ports(
            hub=hub, proxy_api=proxy_api, scheduler=scheduler, console=console, gateway=gateway
        )
        self.settings = InstallationSettings(
            state_dir=self.folder, port=public, ports=ports, gpus=Gpus(count=4), managed=False
        )
        self.url = self.settings.public_url
        self.token = secrets.token_hex(32)
        self.keys = Keys.generate()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    async def __aenter__(self) -> Self:
        """Start everything and wait until it can be used."""
        for folder in (self.settings.hub_dir, self.settings.log_dir):
            folder.mkdir(mode=0o700)
        try:
            config = self._write_config()
            with config.open("a") as file:
                file.write(self.extra)
            parts = all_parts(self.settings, self.keys, config, self._network())
            for part in parts:
                if part.name in self.wanted:
                    self._start(self._adapt(part))
            await self._until_usable()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    def _network(self) -> Mapping[str, str]:
        """The environment about the scheduler's network of tasks."""
        return {}

    async def __aexit__(self, *_: object) -> None:
        """End every process of this stack and remove the folder."""
        for process in self._processes.values():
            process.send_signal(signal.SIGTERM)
        for process in self._processes.values():
            await asyncio.to_thread(process.wait, 60)
        await asyncio.to_thread(end_all_below, self.folder)
        shutil.rmtree(self.folder)

    def processes(self) -> dict[str, psutil.Process]:
        """The parts that run, by name."""
        return {name: psutil.Process(one.pid) for name, one in self._processes.items()}

    def session(self) -> aiohttp.ClientSession:
        """Calls to the Hub's API with the rights of the benchmark."""
        return aiohttp.ClientSession(
            self.settings.hub_url,
            headers={"Authorization": f"token {self.token}"},
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=600),
        )

    async def add_users(self, session: aiohttp.ClientSession, names: Sequence[str]) -> None:
        """Make users who may start servers."""
        async with session.post("/hub/api/users", json={"usernames": list(names)}) as answer:
            await expect(answer, 201)

    def _write_config(self) -> Path:
        config = self.settings.hub_dir / "jupyterhub_config.py"
        for name, text in WITHOUT_CARREL.items():
            path = self.folder / "jupyter" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        write_traefik(self.settings)
        config.write_text(
            PLAIN.format(
                public=self.url,
                hub=self.settings.hub_url,
                folder=self.folder,
                proxy_api=self.settings.ports.proxy_api,
                proxy_token=self.keys.proxy,
                proxy_hash=hashed(self.keys.proxy),
                routes=self.settings.routes_dir,
                entry=traefik.PUBLIC,
                api_entry=traefik.INTERNAL,
                password=PASSWORD,
                python=sys.executable,
                arguments=["--allow-root"] if os.geteuid() == 0 else [],
            )
            + BENCH.format(services="[]", roles="[]", token=self.token)
        )
        return config

    def _adapt(self, part: ProcessPart) -> ProcessPart:
        """The Hub finds the benchmarks' own spawners."""
        return _with_repository(part) if part.name == "hub" else part

    def _start(self, part: ProcessPart) -> None:
        with part.log.open("ab") as log:
            self._processes[part.name] = subprocess.Popen(
                part.command, env=dict(part.environment), cwd="/", stdout=log, stderr=log
            )

    async def _until_usable(self) -> None:
        await self._answers("hub", f"{self.url}/hub/api/")

    async def _answers(self, part: str, url: str, headers: Mapping[str, str] | None = None) -> None:
        async with (
            asyncio.timeout(READY_SECONDS),
            aiohttp.ClientSession(headers=headers) as session,
        ):
            while True:
                if self._processes[part].poll() is not None:
                    log = (self.settings.log_dir / f"{part}.log").read_text()
                    raise RuntimeError(f"{self.name}: {part} ended:\n{log[-3000:]}")
                try:
                    async with session.get(url) as answer:
                        if answer.status < 400:
                            return
                except aiohttp.ClientError:
                    pass
                await asyncio.sleep(0.1)


class CarrelStack(Stack):
    """Hub, proxy, scheduler and console as ``carrel up`` runs them, with one project.

    All work shares the machine's network, unless ``isolated_networks`` is set: then as root each
    user's work is in a network namespace of its own, which is what ``carrel up`` does.
    """

    name = "Carrel"
    isolated_networks = False
    wanted: Sequence[str] = ("proxy", "hub", "scheduler", "console")

    @override
    def _network(self) -> Mapping[str, str]:
        return find_network(self.settings).told if self.isolated_networks else {}

    @override
    async def __aexit__(self, *_: object) -> None:
        """Remove users' network namespaces, too."""
        await super().__aexit__()
        if self.isolated_networks and os.geteuid() == 0:
            network = InstallationNetwork(
                installation=installation_of(self.settings.state_dir), ports=()
            )
            await asyncio.to_thread(setup.carry_out, setup.NamespaceOrder(network=network, keep=[]))

    @override
    async def add_users(self, session: aiohttp.ClientSession, names: Sequence[str]) -> None:
        """Users with accounts who are members of the project."""
        await asyncio.to_thread(self._add_accounts, names)
        await super().add_users(session, names)
        path = f"/hub/api/groups/project-{PROJECT}/users"
        async with session.post(path, json={"users": list(names)}) as answer:
            await expect(answer, 200)

    @override
    def _write_config(self) -> Path:
        keys_file = self.folder / "keys.json"
        self.keys = Keys.load_or_create(keys_file)
        self._add_accounts(self.people)
        config = self.settings.hub_dir / "jupyterhub_config.py"
        write_config(self.settings, self.settings.hub_dir / "settings.json", keys_file, config)
        with config.open("a") as file:
            file.write(
                BENCH.format(
                    services="c.JupyterHub.services",
                    roles="c.JupyterHub.load_roles",
                    token=self.token,
                )
            )
        return config

    def _add_accounts(self, names: Sequence[str]) -> None:
        accounts = AccountStore(self.settings.accounts_file)
        for name in names:
            accounts.add(name, PASSWORD, joins=[PROJECT])

    @override
    async def _until_usable(self) -> None:
        await super()._until_usable()
        api = f"{self.settings.api_url}/api/v1/openapi.json"
        await self._answers("scheduler", api, {"Authorization": f"token {self.keys.setup}"})
        await self._answers("console", f"{self.url}/services/console/")
        async with AsyncClient(self.settings.api_url, self.keys.setup) as client:
            await client.create_project({"name": PROJECT, "quota": {"gpus": 4}})


class LargeCarrelStack(CarrelStack):
    """The same on a machine whose processors and memory are said to be plenty."""

    @override
    def _adapt(self, part: ProcessPart) -> ProcessPart:
        part = super()._adapt(part)
        if part.name != "scheduler":
            return part
        command = [sys.executable, "-m", "benchmarks.large_machine"]
        return dataclasses.replace(_with_repository(part), command=command)


def _with_repository(part: ProcessPart) -> ProcessPart:
    environment = {**part.environment, "PYTHONPATH": str(REPOSITORY)}
    return dataclasses.replace(part, environment=environment)


async def expect(answer: aiohttp.ClientResponse, status: int) -> None:
    """Raise ``RuntimeError`` with what was said unless the status is the right one."""
    if answer.status != status:
        raise RuntimeError(f"{answer.url}: {answer.status}: {await answer.text()}")


def free_ports(count: int) -> list[int]:
    """Different ports that nobody listens on now."""
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    found = [int(probe.getsockname()[1]) for probe in probes]
    for probe in probes:
        probe.close()
    return found


def end_all_below(folder: Path) -> None:
    """End every process that works in the folder or was told of it, but not ourselves."""
    mark = str(folder)
    ended = []
    for process in psutil.process_iter():
        try:
            ours = process.cwd().startswith(mark) or any(mark in part for part in process.cmdline())
            ours = ours or any(mark in value for value in process.environ().values())
            if ours and process.pid != os.getpid():
                process.kill()
                ended.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    psutil.wait_procs(ended, timeout=30)
