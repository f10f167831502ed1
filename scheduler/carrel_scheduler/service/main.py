"""The scheduler as one process: reads its settings, wires the layers, serves until told to stop.

``service.local`` and ``service.cluster`` have what differs between one machine and a cluster.
"""

import asyncio
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from carrel_process.listening import inherited, listen
from carrel_scheduler.api.code_store import CodeStore
from carrel_scheduler.api.dependencies import NodeAgents
from carrel_scheduler.api.http.app import ApiDependencies, make_app
from carrel_scheduler.api.principals.access_rules import AccessRules
from carrel_scheduler.api.principals.hub import HubIdentity, HubMembership
from carrel_scheduler.api.principals.users import HubUsers
from carrel_scheduler.api.results import Results
from carrel_scheduler.collecting import collect_rarely
from carrel_scheduler.engines.contract import Engine
from carrel_scheduler.engines.external import ExternalPods, ReconcilerAccess
from carrel_scheduler.engines.files.contract import Files, NoFiles
from carrel_scheduler.engines.files.pods import PodFiles
from carrel_scheduler.engines.kubernetes.external_pods import executor
from carrel_scheduler.engines.kubernetes.leadership import LeadershipLost
from carrel_scheduler.engines.local.accounts import Accounts
from carrel_scheduler.engines.node_group_store import NodeGroupStore
from carrel_scheduler.environment import InvalidVariable
from carrel_scheduler.ids import new_id
from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.kube.credentials import find
from carrel_scheduler.ledger.open import open_ledger
from carrel_scheduler.ledger.records import Fenced, Ledger
from carrel_scheduler.ledger.resources.ledger import KubernetesLedger
from carrel_scheduler.ledger.resources.rows import open_rows
from carrel_scheduler.ledger.secret_keys import KEYS_FILE, SecretKeys
from carrel_scheduler.ledger.store import ObjectNotFound
from carrel_scheduler.node.contract import NodeFacts
from carrel_scheduler.node.machine import detect, find_mig
from carrel_scheduler.node.mig import MigDevices, MigUnusable
from carrel_scheduler.node.nvml import NvmlUnusable
from carrel_scheduler.policy.rights import MayCreate
from carrel_scheduler.quarantine import Quarantine
from carrel_scheduler.service.audit_export import AuditExport
from carrel_scheduler.service.cluster import Cluster, Lead, lead, secret_keys
from carrel_scheduler.service.listening import http_server, serve_trouble
from carrel_scheduler.service.local import NotedProvider, OneMachine
from carrel_scheduler.service.monitoring import Monitoring
from carrel_scheduler.service.settings import ServiceSettings
from carrel_scheduler.workloads.controllers.dependencies import Dependencies
from carrel_scheduler.workloads.controllers.experiments.studies import Studies
from carrel_scheduler.workloads.controllers.experiments.trials import TrialController
from carrel_scheduler.workloads.controllers.experiments.trials import (
    wired as experiments_controller,
)
from carrel_scheduler.workloads.controllers.inference.controller import Inference
from carrel_scheduler.workloads.controllers.inference.loads import Loads
from carrel_scheduler.workloads.controllers.inference.probing import Prober
from carrel_scheduler.workloads.controllers.schedules import Schedules
from carrel_scheduler.workloads.faults.guarding import FATAL
from carrel_scheduler.workloads.launch.fitting import Fitting
from carrel_scheduler.workloads.launch.task_specs import LaunchSettings, TaskTokens
from carrel_scheduler.workloads.reconcile.executor import Executor
from carrel_scheduler.workloads.reconcile.hub import WorkspaceStarter
from carrel_scheduler.workloads.reconcile.live import LiveState
from carrel_scheduler.workloads.reconcile.reconciler import Reconciler
from carrel_scheduler.workloads.reconcile.recovery import recover
from carrel_scheduler.workloads.reconcile.usage_history import PastUse
from carrel_scheduler.workloads.reconcile.watchers import (
    watch_budgets,
    watch_departments,
    watch_engine,
    watch_projects,
    watch_usage,
    watch_workloads,
)
from carrel_scheduler.workloads.retention import Retention, RetentionRules
from carrel_scheduler.workloads.state.events import LoopEvent
from carrel_scheduler.workloads.state.ports import PortAllocator
from carrel_schema.objects import Workload

if TYPE_CHECKING:
    from carrel_scheduler.engines.local.engine import LocalEngine

T = TypeVar("T")
log = logging.getLogger("carrel_scheduler")
SWEEP_SECONDS: Final = 3600.0


class ServiceEnvironment(Protocol):
    """The environment of the service: one machine, or a cluster.

    Attributes:
        tokens: of tasks; ``ports``: chooses theirs; ``launch``: what their environment is made of.
        fits: what cannot run there.
    """

    tokens: TaskTokens
    ports: PortAllocator
    launch: LaunchSettings
    fits: Fitting

    def external_pods(self, access: ReconcilerAccess, /) -> ExternalPods:
        """The part that places external pods."""
        ...

    def host_of(self, node: str, /) -> str:
        """The host at which tasks of a node listen, if they have no address of their own."""
        ...

    async def facts(self) -> Sequence[NodeFacts]:
        """The facts of all nodes."""
        ...

    def node_agents(self, enqueue: Callable[[LoopEvent], None], /) -> NodeAgents:
        """The reports about devices of other nodes."""
        ...

    def node_groups(self, loop: Reconciler, /) -> NodeGroupStore:
        """The store of definitions of node groups."""
        ...

    def trouble(self) -> str:
        """The reason why no work can run, as a sentence; empty if it can."""
        ...

    async def begin(
        self, loop: Reconciler, group: asyncio.TaskGroup, may_create: MayCreate
    ) -> Sequence["asyncio.Task[None]"]:
        """Begin to watch the environment; returns once the reconciler may run.

        Args:
            loop: the reconciler.
            group: of the tasks that watch.
            may_create: the access rules, for work that comes by other ways than the API.
        """
        ...

    async def close(self) -> None:
        """Release everything."""
        ...


class SchedulerService:
    """The parts of one scheduler process."""

    def __init__(
        self,
        settings: ServiceSettings,
        ledger: Ledger,
        engine: Engine,
        environment: ServiceEnvironment,
        quarantine: Quarantine | None = None,
        listener: socket.socket | None = None,
        files: Files | None = None,
    ) -> None:
        self._settings = settings
        files = files or NoFiles()
        retention = settings.retention
        if files.by_project:  # nothing is removed there so far
            retention = RetentionRules(0.0, 0.0, retention.project_bytes)
        self._listener = listener
        self._ledger = ledger
        self._engine = engine
        self._environment = environment
        launch = environment.launch
        starter = WorkspaceStarter(settings.hub_api_url, settings.hub_token)
        self.loop = Reconciler(
            ledger,
            Executor(engine, ledger, launch, starter),
            clock=time.time,
            ports=environment.ports,
            settings=settings.core,
            quarantine=quarantine,
            external_pods=environment.external_pods,
            gpu_memory=settings.gpu_memory_enforcement,
            stall_rule=settings.stall_rule,
        )
        loads = Loads(time.time, self.loop.composites.wake)
        self._prober = Prober(self.loop.composites.wake)
        self._trials, self._studies = self._add_controllers(loads)
        self._results = Results(settings.state_dir / "results")
        self._code = CodeStore(settings.state_dir / "code")
        self._retention = Retention(files, ledger, self.loop.cache, retention, clock=time.time)
        self._identity = HubIdentity(settings.hub_api_url, settings.hub_token)
        self._membership = HubMembership(settings.hub_api_url, settings.hub_token)
        self._users = HubUsers(settings.hub_api_url, settings.hub_token)
        live = LiveState(self.loop, environment.fits)
        self._monitoring = Monitoring(settings, ledger, self.loop, live, time.time, self._trouble)
        self._server = http_server(make_app(self._api_dependencies(live, loads, files, retention)))

    def _trouble(self) -> str:
        """The reason why no work can run, as a sentence; empty if it can."""
        return self._environment.trouble() or self._ledger.trouble

    def _add_controllers(self, loads: Loads) -> tuple[TrialController, Studies]:
        """Add the controllers of composite workloads; returns what the API asks of experiments."""
        composites, environment = self.loop.composites, self._environment
        experiments, trials, studies = experiments_controller(
            self._ledger, self._engine, composites, clock=time.time
        )
        composites.add(experiments)
        prefix = environment.launch.gateway_prefix
        composites.add(Inference(loads, self._prober, environment.host_of, prefix))
        composites.add(Schedules())
        return trials, studies

    def _api_dependencies(
        self, live: LiveState, loads: Loads, files: Files, retention: RetentionRules
    ) -> ApiDependencies:
        settings, environment = self._settings, self._environment
        return ApiDependencies(
            ledger=self._ledger,
            live=live,
            alerts=self._monitoring.alerts,
            budgets=self._monitoring.budgets,
            engine=self._engine,
            trouble=self._trouble,
            identity=self._identity,
            membership=self._membership,
            users=self._users,
            loads=loads,
            trials=self._trials,
            clock=time.time,
            ids=new_id,
            task_tokens=environment.tokens,
            job_limits=settings.job_limits,
            results=self._results,
            code=self._code,
            files=files,
            retention=retention,
            prefix=settings.prefix,
            reconciler_metrics=self.loop.metrics.registry,
            runai_metrics=settings.runai_metrics,
            node_agents=environment.node_agents(self.loop.enqueue),
            node_groups=environment.node_groups(self.loop),
            cluster_access=settings.cluster.access if settings.cluster else None,
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Recover, serve and reconcile until ``stop`` is set. Raises errors that end it early."""
        collect_rarely()
        await self._results.begin()
        async with asyncio.TaskGroup() as group:
            facts = await self._environment.facts()
            seen = asyncio.Event()
            work = [group.create_task(watch_engine(self._engine, self.loop, seen))]
            await seen.wait()
            projects, workloads = await recover(self.loop, facts, await self._engine.list())
            rules = AccessRules(self._ledger, self._membership, time.time)
            work += await self._environment.begin(self.loop, group, rules.may_create)
            work += [
                group.create_task(watch_projects(self._ledger, self.loop, projects)),
                group.create_task(watch_departments(self._ledger, self.loop, projects)),
                group.create_task(watch_workloads(self._ledger, self.loop, workloads)),
                group.create_task(self.loop.run()),
                group.create_task(self.loop.composites.run()),
                group.create_task(self._sweep()),
                group.create_task(self._sweep_code()),
                group.create_task(self._sweep_files()),
                group.create_task(AuditExport(self._ledger, time.time).run()),
                *self._monitoring.begin(group),
                group.create_task(Dependencies(self._ledger, self.loop.quarantine).run()),
            ]
            work.append(
                group.create_task(watch_budgets(self._monitoring.budgets.lowering, self.loop))
            )
            if self._settings.past_use.factor:
                past = PastUse(self._ledger, self._settings.past_use.half_life_s)
                work.append(group.create_task(watch_usage(past, self.loop, time.time)))
            listen(self._server, self._settings.host, self._settings.port, self._listener)
            log.info("listening on %s:%d", self._settings.host, self._settings.port)
            await stop.wait()
            await self._close()
            for task in work:
                task.cancel()

    async def _sweep(self) -> None:
        """Remove results of deleted workloads; failures are retried at the next start."""
        with self.loop.quarantine.guard("message", "results", fatal=FATAL):
            await self._results.sweep(self._known)

    async def _sweep_code(self) -> None:
        """Remove the code of deleted jobs once an hour."""
        while True:
            needed: dict[str, set[str]] = {name: set() for name in self.loop.cache.projects}
            for entry in self.loop.cache:
                source = entry.workload.spec.code
                if source is not None:
                    needed.setdefault(entry.workload.meta.project, set()).add(source.digest)
            with self.loop.quarantine.guard("message", "code", fatal=FATAL):
                await self._code.sweep(needed, time.time())
            await asyncio.sleep(SWEEP_SECONDS)

    async def _sweep_files(self) -> None:
        """Remove expired files of work periodically."""
        while True:
            with self.loop.quarantine.guard("message", "files", fatal=FATAL):
                await self._retention.sweep()
            await asyncio.sleep(self._retention.pause_seconds)

    async def _known(self, uid: str) -> bool:
        """Whether a workload of this uid exists."""
        try:
            await self._ledger.get_by_uid(Workload, uid)
        except ObjectNotFound:
            return False
        return True

    async def _close(self) -> None:
        """Stop listening and release everything; running tasks go on."""
        self._server.stop()
        self.loop.stream.close()
        await self._server.close_all_connections()
        await self._prober.close()
        await self.loop.executor.close()
        self._studies.close()
        await self._identity.close()
        await self._membership.close()
        await self._users.close()


async def serve(settings: ServiceSettings, listener: socket.socket | None = None) -> None:
    """Run until SIGTERM or SIGINT; on one machine, at ``listener`` if it is given one."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    if settings.engine == "kubernetes":
        await _serve_cluster(settings, stop)
    else:
        await _serve_machine(settings, stop, listener)


async def _serve_machine(
    settings: ServiceSettings, stop: asyncio.Event, listener: socket.socket | None
) -> None:
    # The sandbox of local processes is not installed where all work is pods.
    from carrel_scheduler.engines.files.local import LocalFiles
    from carrel_scheduler.engines.local.cgroups import find_limiter
    from carrel_scheduler.engines.local.engine import LocalEngine
    from carrel_scheduler.engines.local.gpu_memory import DriverLimits, GpuMemory
    from carrel_scheduler.engines.local.launch import TaskOptions
    from carrel_scheduler.engines.local.network.namespaces import NetworkNamespaces

    root = settings.state_dir / "engine"
    limiter = find_limiter(root)
    gpu_memory = GpuMemory(
        enabled=settings.gpu_memory_enforcement != "off", driver=DriverLimits(limiter)
    )
    engine = LocalEngine(
        root,
        socket.gethostname(),
        clock=time.time,
        accounts=Accounts(
            root / "accounts", root / "homes", system_accounts=settings.system_accounts
        ),
        options=TaskOptions(user_namespaces=settings.user_namespaces, images=settings.images),
        namespaces=None if settings.network is None else NetworkNamespaces(settings.network),
        gpu_memory=gpu_memory,
        limiter=limiter,
    )
    mig = await _divided_gpus(settings, engine)
    provider = detect(settings.gpus, settings.gpu_memory_mib, settings.gpu_name, mig=mig)
    for sentence in await engine.isolation():
        log.info("%s", sentence)
    if not provider.facts().simulated:
        log.info("%s", await asyncio.to_thread(gpu_memory.summary))
    quarantine = Quarantine(time.time)
    ledger = await open_ledger(
        settings.database_url,
        clock=time.time,
        ids=new_id,
        quarantine=quarantine,
        keys=SecretKeys.load_or_create(settings.state_dir / KEYS_FILE),
    )
    try:
        await ledger.encrypt_secrets_anew()
        noted = NotedProvider(provider, engine.note_gpu_use, gpu_memory.summary)
        environment = OneMachine(settings, noted, mig)
        service = SchedulerService(
            settings, ledger, engine, environment, quarantine, listener, LocalFiles(engine)
        )
        await service.run(stop)
    finally:
        await engine.close()
        await ledger.close()


async def _serve_cluster(settings: ServiceSettings, stop: asyncio.Event) -> None:
    client = KubeClient(find())
    try:
        keys = await secret_keys(client, settings.need_cluster())
        rows = await open_rows(settings.database_url, clock=time.time, ids=new_id, keys=keys)
        quarantine = Quarantine(time.time)
        ledger = KubernetesLedger(client, rows, clock=time.time, ids=new_id, quarantine=quarantine)
        try:
            leading = await _unless(stop, _led(settings, client))
            if leading is None:
                return
            await rows.encrypt_secrets_anew()
            environment = Cluster(settings, client, ledger, leading)
            try:
                engine = environment.engine
                service = SchedulerService(
                    settings, ledger, engine, environment, quarantine, files=PodFiles(engine)
                )
                await service.run(stop)
            finally:
                await environment.engine.close()
                await environment.close()
        finally:
            await ledger.close()
    finally:
        await client.close()


async def _led(settings: ServiceSettings, client: KubeClient) -> Lead:
    """Wait until this process leads; meanwhile the port answers why it waits."""
    answering = asyncio.create_task(
        serve_trouble(lambda: client.trouble, settings.port, settings.host)
    )
    try:
        return await lead(settings, client)
    finally:
        answering.cancel()
        await asyncio.gather(answering, return_exceptions=True)


async def _unless(stop: asyncio.Event, wanted: Coroutine[None, None, T]) -> T | None:
    """The result, or ``None`` if the service is to stop before."""
    coming, stopping = asyncio.create_task(wanted), asyncio.create_task(stop.wait())
    await asyncio.wait({coming, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if coming.done():
        return coming.result()
    coming.cancel()
    await asyncio.wait([coming])
    return None


async def _divided_gpus(settings: ServiceSettings, engine: "LocalEngine") -> MigDevices | None:
    """The machine's GPUs, if they are to be divided, or if live tasks have parts of them."""
    if not settings.mig:
        if not await engine.holds_instances():
            return None
        log.warning(
            "GPUs stay divided into MIG instances, because tasks have some: stop those, and start"
            " again to end it"
        )
    mig = find_mig(settings.gpus)
    engine.divide_gpus(mig)
    return mig


def main() -> None:
    """Entry point of ``carrel-scheduler``."""
    # After the imports: the compiled modules that they leave behind are for everybody.
    os.umask(0o077)
    listener = inherited()
    logging.basicConfig(
        level=os.environ.get("CARREL_LOG_LEVEL", "INFO"),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    try:
        settings = ServiceSettings.from_environment(os.environ)
    except InvalidVariable as error:
        sys.exit(f"carrel-scheduler: {error}")
    try:
        asyncio.run(serve(settings, listener))
    except* Fenced:
        sys.exit("carrel-scheduler: another scheduler took over this ledger; this one ends")
    except* executor.BindingFenced:
        sys.exit("carrel-scheduler: the cluster follows another scheduler; this one ends")
    except* (NvmlUnusable, MigUnusable) as errors:
        sys.exit(f"carrel-scheduler: {errors.exceptions[0]}")
    except* LeadershipLost as errors:
        sys.exit(f"carrel-scheduler: {errors.exceptions[0]}; this one ends")
