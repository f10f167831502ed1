"""The API on a loopback port over a real SQLite ledger, with two projects and their workloads."""

import asyncio
import io
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import aiohttp

from carrel_scheduler.alerts.conditions import Facts
from carrel_scheduler.alerts.controller import AlertController
from carrel_scheduler.api.code_store import CodeStore
from carrel_scheduler.api.dependencies import ApiDependencies, StreamTiming
from carrel_scheduler.api.http.app import make_app
from carrel_scheduler.api.principals.jobs import JobLimits
from carrel_scheduler.api.results import Results
from carrel_scheduler.engines.node_group_store import LedgerNodeGroups
from carrel_scheduler.ledger.open import open_ledger
from carrel_scheduler.ledger.records import Decision, Ledger, MetricPoint, Transition
from carrel_scheduler.service.listening import RequestLimits, http_server
from carrel_scheduler.workloads.controllers.experiments.studies import Studies
from carrel_scheduler.workloads.controllers.experiments.trials import TrialController
from carrel_scheduler.workloads.controllers.manager import Manager
from carrel_scheduler.workloads.launch.task_specs import TaskTokens
from carrel_scheduler.workloads.retention import RetentionRules
from carrel_schema.governance.kubeconfig import ClusterAccess, SignInCommand
from carrel_schema.objects import (
    Meta,
    Preemption,
    Project,
    ProjectSpec,
    Quota,
    ReasonInfo,
    TaskInfo,
    Workload,
    WorkloadSpec,
    WorkloadStatus,
)
from contract.api.fake_users import FakeUsers
from contract.api.fakes import (
    FakeAgents,
    FakeEngine,
    FakeIdentity,
    FakeLive,
    FakeMembership,
    waiting_reason,
)
from contract.api.folder_files import FolderFiles
from contract.ledger.copied_ledgers import empty_ledger


def nobody(kind: str, workload: Workload) -> None:
    """A publisher without listeners."""


ROOT = "/services/carrel/api/v1"
MOST_CODE_BYTES = 2**20
TIMEOUT_SECONDS = 60.0
TIMING = StreamTiming(
    keep_alive=0.05, places=0.05, verify=0.0, verify_timeout=0.2, first_piece=0.05, per_user=5
)


@dataclass(slots=True)
class Clock:
    """Seconds that tests move."""

    now: float = 1_790_000_000.0

    def __call__(self) -> float:
        return self.now


@dataclass(slots=True)
class Ids:
    """uid-1, uid-2, …"""

    last: int = 0

    def __call__(self) -> str:
        self.last += 1
        return f"{self.last:032x}"


@dataclass(slots=True)
class Reply:
    """An answer, read to its end."""

    status: int
    headers: Any
    raw: bytes
    body: Any

    @property
    def code(self) -> str:
        return str(self.body["code"])

    @property
    def fields(self) -> dict[str, str]:
        return {error["field"]: error["code"] for error in self.body["errors"]}


@dataclass(slots=True)
class ApiHarness:
    """A running API and everything it stands on."""

    ledger: Ledger
    live: FakeLive
    engine: FakeEngine
    studies: Studies
    identity: FakeIdentity
    membership: FakeMembership
    users: FakeUsers
    clock: Clock
    tokens: TaskTokens
    files: FolderFiles
    session: aiohttp.ClientSession
    alerts: AlertController
    facts: Facts
    url: str = ""
    agents: FakeAgents = field(default_factory=FakeAgents)
    uids: dict[str, str] = field(default_factory=dict)

    async def ask(
        self, method: str, path: str, who: str | None = "ada", *, base: str = ROOT, **options: Any
    ) -> Reply:
        """Call as somebody; ``who`` is a name, a whole token with a ``-`` or ``.``, or nobody."""
        headers = dict(options.pop("headers", {}))
        if who is not None:
            token = who if ("-" in who or "." in who) else f"{who}-token"
            headers["Authorization"] = f"token {token}"
        if "json" in options:
            headers.setdefault("Content-Type", "application/json")
            options["data"] = json.dumps(options.pop("json")).encode()
        if isinstance(options.get("data"), bytes):
            options["data"] = io.BytesIO(options["data"])
        async with self.session.request(
            method, self.url + base + path, headers=headers, **options
        ) as response:
            raw = await response.read()
            is_json = response.content_type.endswith("json")
            body = await response.json(content_type=None) if is_json and raw else None
            return Reply(response.status, response.headers, raw, body)

    async def until(self, condition: Callable[[], bool], seconds: float = TIMEOUT_SECONDS) -> None:
        """Wait for a condition, with a bound."""
        async with asyncio.timeout(seconds):
            while not condition():  # noqa: ASYNC110 - the condition is anything at all
                await asyncio.sleep(0.005)

    async def workload(self, project: str, name: str) -> Workload:
        return await self.ledger.get(Workload, name, project)

    async def set_status(self, project: str, name: str, **changes: Any) -> Workload:
        """Write a status as the reconciler would."""
        workload = await self.workload(project, name)
        for key, value in changes.items():
            setattr(workload.status, key, value)
        return await self.ledger.update_status(workload)

    async def add(self, project: str, name: str, user: str, **more: Any) -> Workload:
        """Put a workload into the ledger."""
        uid = f"uid-{project}-{name}"
        status = more.pop("status", WorkloadStatus())
        kind, labels = more.pop("kind", "training"), more.pop("labels", {})
        meta = Meta(name=name, project=project, uid=uid, created_at=1.0, created_by=user)
        meta.labels = labels
        workload = Workload(
            meta=meta,
            spec=WorkloadSpec(kind=kind, user=user, command=["true"], **more),
            status=status,
        )
        row = Transition(
            at=self.clock(),
            epoch=0,
            workload_uid=uid,
            workload=name,
            project=project,
            user=user,
            kind=kind,
            attempt=0,
            from_phase="",
            to_phase="pending",
            reason=waiting_reason("speech", "speech-secret-job", "speech-secret-user"),
        )
        self.uids[name] = uid
        return await self.ledger.create_workload(
            workload, secrets={"KEY": "hidden-value"}, transition=row
        )

    async def furnish(self) -> Self:
        """Two projects of two GPUs each; a running training and a workspace in each."""
        for name in ("vision", "speech"):
            spec = ProjectSpec(quota=Quota(gpu_milli=2000), members_group=f"project-{name}")
            await self.ledger.create(Project(meta=Meta(name=name, created_at=1.0), spec=spec))
            user, other = ("ada", "speech") if name == "vision" else ("carl", "vision")
            await self.add(name, "train-1", user, status=_running(other))
            await self.add(name, "desk", user, kind="workspace", status=_running(other))
            await self._past(name)
        return self

    async def _past(self, project: str) -> None:
        uid = f"uid-{project}-train-1"
        point = MetricPoint(at=2.0, step=1, name="loss", value=0.5)
        await self.ledger.add_metrics(uid, [point])
        epoch = await self.ledger.begin_epoch()
        decision = Decision(
            at=3.0,
            epoch=epoch,
            cycle=1,
            input_version=1,
            action="bind",
            workload_uid=uid,
            workload="train-1",
            project=project,
            node="node-1",
            devices=(0,),
            reason=_running("speech").reason,
        )
        start = Transition(
            at=self.clock() - 100,
            epoch=epoch,
            workload_uid=uid,
            workload="train-1",
            project=project,
            user="ada" if project == "vision" else "carl",
            kind="training",
            attempt=0,
            from_phase="pending",
            to_phase="starting",
            gpu_milli=1000,
        )
        await self.ledger.record(epoch=epoch, decisions=[decision], transitions=[start])


def _running(foreign: str) -> WorkloadStatus:
    return WorkloadStatus(
        phase="running",
        reason=_reason(foreign),
        tasks=[TaskInfo(index=0, attempt=2, node="node-1", devices=(0,), pid=77)],
        last_preemption=Preemption(
            at=1.0,
            rule="reclaim",
            for_project=foreign,
            for_workload=f"{foreign}-secret-job",
            for_workload_uid=f"uid-{foreign}-secret-job",
        ),
    )


def _reason(foreign: str) -> ReasonInfo:
    return waiting_reason(foreign, f"{foreign}-secret-job", f"{foreign}-secret-user")


CLUSTER_ACCESS = ClusterAccess(
    server="https://k8s:6443", sign_in=SignInCommand(command="kubelogin")
)


@asynccontextmanager
async def running(
    folder: Path,
    timing: StreamTiming = TIMING,
    limits: RequestLimits | None = None,
    cluster_access: ClusterAccess | None = CLUSTER_ACCESS,
) -> AsyncIterator[ApiHarness]:
    """A furnished API on a free port of 127.0.0.1."""
    clock, ids = Clock(), Ids()
    ledger = await open_ledger(empty_ledger(folder / "api.sqlite"), clock=clock, ids=ids)
    tokens = TaskTokens(b"k" * 32)
    async with aiohttp.ClientSession() as session:
        harness = ApiHarness(
            alerts=AlertController(ledger, lambda: harness.facts, clock),
            facts=Facts(now=clock.now),
            ledger=ledger,
            live=FakeLive(ledger),
            engine=FakeEngine(),
            studies=Studies(ledger, epoch=lambda: 0),
            identity=FakeIdentity(),
            membership=FakeMembership(),
            users=FakeUsers(),
            clock=clock,
            tokens=tokens,
            files=FolderFiles(folder / "files"),
            session=session,
        )
        app = make_app(
            ApiDependencies(
                ledger=ledger,
                live=harness.live,
                engine=harness.engine,
                identity=harness.identity,
                membership=harness.membership,
                users=harness.users,
                trials=TrialController(
                    harness.studies, Manager(ledger, clock=clock, publish=nobody), clock=clock
                ),
                clock=clock,
                ids=ids,
                task_tokens=tokens,
                results=Results(folder / "results"),
                node_agents=harness.agents,
                node_groups=LedgerNodeGroups(ledger.scoped, lambda _: None),
                code=CodeStore(folder / "code", most_bytes=MOST_CODE_BYTES),
                files=harness.files,
                retention=RetentionRules(project_bytes=FolderFiles.ROOM),
                timing=timing,
                job_limits=JobLimits(depth=2, descendants=3),
                alerts=harness.alerts,
                cluster_access=cluster_access,
            )
        )
        server = http_server(app, limits)
        server.listen(0, "127.0.0.1")
        (port,) = {sock.getsockname()[1] for sock in server._sockets.values()}
        harness.url = f"http://127.0.0.1:{port}"
        try:
            yield await harness.furnish()
        finally:
            server.stop()
            await server.close_all_connections()
            harness.studies.close()
            await harness.alerts.close()
    await ledger.close()
