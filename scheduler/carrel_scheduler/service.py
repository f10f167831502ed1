"""The scheduler as one process: reads its settings, wires the layers, serves until told to stop.

Settings come from the environment (a managed service of the Hub has no other channel):

=========================  =====================================================================
variable                   meaning
=========================  =====================================================================
``CARREL_STATE_DIR``       folder that holds everything that lasts
``CARREL_DATABASE_URL``    SQLAlchemy URL; default: SQLite in the state folder
``CARREL_GPUS``            number of simulated GPUs; unset: real ones if there are any, else 4
``CARREL_GPU_MEMORY_MIB``  memory of a simulated GPU
``CARREL_GPU_NAME``        model of a simulated GPU
``JUPYTERHUB_*``           what the Hub gives every service: URL, token, prefix
=========================  =====================================================================
"""

import asyncio
import gc
import logging
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlparse

from tornado.httpserver import HTTPServer

from carrel_scheduler.api.app import ApiDependencies, make_app
from carrel_scheduler.api.hub import HubIdentity, HubMembership
from carrel_scheduler.api.results import Results
from carrel_scheduler.engines.contract import Engine
from carrel_scheduler.engines.local.connections import met_at
from carrel_scheduler.engines.local.engine import LocalEngine
from carrel_scheduler.ledger.objects import Workload
from carrel_scheduler.ledger.open import open_ledger
from carrel_scheduler.ledger.records import Fenced, Ledger
from carrel_scheduler.ledger.store import NotFound
from carrel_scheduler.node.contract import DeviceProvider
from carrel_scheduler.node.detect import detect
from carrel_scheduler.workloads.actor import Actor
from carrel_scheduler.workloads.controllers import experiments_trials
from carrel_scheduler.workloads.controllers.inference import Inference
from carrel_scheduler.workloads.controllers.probing import Prober
from carrel_scheduler.workloads.controllers.schedules import Schedules
from carrel_scheduler.workloads.hub import WorkspaceStarter
from carrel_scheduler.workloads.launch import LaunchSettings
from carrel_scheduler.workloads.live import LiveView
from carrel_scheduler.workloads.loads import Loads
from carrel_scheduler.workloads.meeting import pump_meetings
from carrel_scheduler.workloads.ports import HeldPorts
from carrel_scheduler.workloads.pumps import (
    pump_devices,
    pump_engine,
    pump_projects,
    pump_workloads,
)
from carrel_scheduler.workloads.reconciler import Reconciler
from carrel_scheduler.workloads.recovery import recover
from carrel_scheduler.workloads.tokens import TaskTokens

log = logging.getLogger("carrel_scheduler")

MAX_BODY_BYTES = 4 * 1024 * 1024
IDS_AT_ONCE = 100
LOOPBACK = "127.0.0.1"
COLLECT_AFTER = (50_000, 20, 100)


class MissingSetting(Exception):  # noqa: N818
    """A variable without which the service cannot start is not set."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} is not set; `carrel up` sets it, or see carrel_scheduler.service")


@dataclass(frozen=True, slots=True)
class Settings:
    """What the environment says. ``host`` and ``port`` are where to listen."""

    state_dir: Path
    database_url: str
    host: str
    port: int
    prefix: str
    hub_api_url: str
    hub_token: str
    gpus: int | None
    gpu_memory_mib: int
    gpu_name: str

    @classmethod
    def from_environment(cls, env: Mapping[str, str]) -> "Settings":
        """Read the environment; raises ``MissingSetting``."""

        def need(name: str) -> str:
            if name not in env:
                raise MissingSetting(name)
            return env[name]

        state_dir = Path(need("CARREL_STATE_DIR"))
        where = urlparse(need("JUPYTERHUB_SERVICE_URL"))
        gpus = env.get("CARREL_GPUS", "")
        return cls(
            state_dir=state_dir,
            database_url=env.get("CARREL_DATABASE_URL") or f"sqlite:///{state_dir}/carrel.sqlite",
            host=where.hostname or "127.0.0.1",
            port=where.port or 0,
            prefix=need("JUPYTERHUB_SERVICE_PREFIX").rstrip("/"),
            hub_api_url=need("JUPYTERHUB_API_URL"),
            hub_token=need("JUPYTERHUB_API_TOKEN"),
            gpus=int(gpus) if gpus else None,
            gpu_memory_mib=int(env.get("CARREL_GPU_MEMORY_MIB") or 24 * 1024),
            gpu_name=env.get("CARREL_GPU_NAME") or "A10",
        )


def task_key(state_dir: Path) -> bytes:
    """The key that signs task tokens, made at the first start (mode 0600)."""
    path = state_dir / "task-token.key"
    if not path.exists():
        fresh = path.with_suffix(".new")
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(32))
        fresh.replace(path)
    return path.read_bytes()


class Service:
    """Everything of one scheduler process."""

    def __init__(
        self, settings: Settings, ledger: Ledger, engine: Engine, provider: DeviceProvider
    ) -> None:
        self._settings = settings
        self._ledger = ledger
        self._engine = engine
        self._provider = provider
        tokens = TaskTokens(task_key(settings.state_dir))
        launch = LaunchSettings(
            api_url=f"http://{settings.host}:{settings.port}{settings.prefix}",
            checkpoint_root=settings.state_dir / "engine" / "checkpoints",
            tokens=tokens,
            gateway_prefix=f"{settings.prefix.rpartition('/')[0]}/gateway",
        )
        starter = WorkspaceStarter(settings.hub_api_url, settings.hub_token)
        self.loop = Reconciler(
            ledger, Actor(engine, ledger, launch, starter), clock=time.time, ports=HeldPorts()
        )
        experiments, trials, self._studies = experiments_trials.wired(
            ledger, engine, self.loop.composites, clock=time.time
        )
        self.loop.composites.add(experiments)
        loads = Loads(time.time, self.loop.composites.wake)
        self._prober = Prober(self.loop.composites.wake)
        self.loop.composites.add(
            Inference(loads, self._prober, lambda _: LOOPBACK, launch.gateway_prefix)
        )
        self._results = Results(settings.state_dir / "results")
        self.loop.composites.add(Schedules())
        self._identity = HubIdentity(settings.hub_api_url, settings.hub_token)
        self._membership = HubMembership(settings.hub_api_url, settings.hub_token)
        self._server = HTTPServer(
            make_app(
                ApiDependencies(
                    ledger=ledger,
                    live=LiveView(self.loop),
                    engine=engine,
                    identity=self._identity,
                    membership=self._membership,
                    loads=loads,
                    trials=trials,
                    clock=time.time,
                    ids=new_id,
                    task_tokens=tokens,
                    results=self._results,
                    prefix=settings.prefix,
                )
            ),
            max_body_size=MAX_BODY_BYTES,
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Recover, serve, and turn the loop until ``stop`` is set; raises what ends it early."""
        collect_rarely()
        await self._results.begin()
        async with asyncio.TaskGroup() as group:
            facts = self._provider.facts()
            seen = asyncio.Event()
            work = [group.create_task(pump_engine(self._engine, self.loop, seen))]
            await seen.wait()
            projects, workloads = await recover(self.loop, [facts], await self._engine.list())
            work += [
                group.create_task(pump_projects(self._ledger, self.loop, projects)),
                group.create_task(pump_workloads(self._ledger, self.loop, workloads)),
                group.create_task(pump_devices(self._provider, self.loop)),
                group.create_task(pump_meetings(met_at, self.loop)),
                group.create_task(self.loop.run()),
                group.create_task(self.loop.composites.run()),
                group.create_task(self._results.sweep(self._known)),
            ]
            self._server.listen(self._settings.port, self._settings.host)
            log.info("listening on %s:%d", self._settings.host, self._settings.port)
            await stop.wait()
            await self._close()
            for task in work:
                task.cancel()

    async def _known(self, uid: str) -> bool:
        """Whether there is a workload of this uid."""
        try:
            await self._ledger.get_by_uid(Workload, uid)
        except NotFound:
            return False
        return True

    async def _close(self) -> None:
        """Stop listening and let go; running tasks go on without us."""
        self._server.stop()
        self.loop.stream.close()
        await self._server.close_all_connections()
        await self._prober.close()
        await self.loop.actor.close()
        self._studies.close()
        await self._identity.close()
        await self._membership.close()


def collect_rarely() -> None:
    """Have the cyclic garbage collector look less often, and never again at what is there now.

    Tens of thousands of live workloads are millions of objects, and none of them is garbage: at its
    usual pace the collector takes a fifth of the process's time.
    """
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER)


_fresh_ids: list[str] = []


def new_id() -> str:
    """A new uid: a random one of 128 bits. Drawn a hundred at a time: asking the kernel is slow."""
    if not _fresh_ids:
        drawn = os.urandom(16 * IDS_AT_ONCE).hex()
        _fresh_ids.extend(drawn[start : start + 32] for start in range(0, len(drawn), 32))
    return _fresh_ids.pop()


async def serve(settings: Settings) -> None:
    """Run until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    provider = detect(settings.gpus, settings.gpu_memory_mib, settings.gpu_name)
    engine = LocalEngine(settings.state_dir / "engine", socket.gethostname(), clock=time.time)
    ledger = await open_ledger(settings.database_url, clock=time.time, ids=new_id)
    try:
        await Service(settings, ledger, engine, provider).run(stop)
    finally:
        await engine.close()
        await ledger.close()


def main() -> None:
    """Entry point of ``carrel-scheduler``."""
    logging.basicConfig(
        level=os.environ.get("CARREL_LOG_LEVEL", "INFO"),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    try:
        settings = Settings.from_environment(os.environ)
    except MissingSetting as error:
        sys.exit(f"carrel-scheduler: {error}")
    try:
        asyncio.run(serve(settings))
    except* Fenced:
        sys.exit("carrel-scheduler: another scheduler took over this ledger; this one ends")


if __name__ == "__main__":
    main()
