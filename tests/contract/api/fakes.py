"""Fakes of the API's dependencies: identity, membership, the live scheduler, an engine.

The ledger of these tests is the real one. Everybody has the token ``<name>-token``.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import Any

import msgspec

from carrel_scheduler.api.principals import identity
from carrel_scheduler.api.principals.identity import (
    IdentityUnavailable,
    Principal,
    UnknownHubUser,
    group_of,
)
from carrel_scheduler.core import mig
from carrel_scheduler.engines.contract import LogRequest, TaskId, TaskSpec, TaskStatus, UnknownTask
from carrel_scheduler.engines.external import PodCounts
from carrel_scheduler.ledger.records import Ledger
from carrel_scheduler.ledger.store import ObjectNotFound
from carrel_scheduler.node.contract import (
    MemoryLimit,
    MemoryLimits,
    MigOrder,
    MigOrders,
    MigReport,
    NodeReport,
)
from carrel_scheduler.workloads.contract import (
    Activity,
    Faults,
    GpuUseSeries,
    LiveEvent,
    NotAccepted,
    ProjectUse,
    QueueEntry,
    UnsupportedField,
)
from carrel_scheduler.workloads.launch.fitting import on_machine
from carrel_schema.answers import DeviceHolder, DeviceView, NodeView, ProjectImpact
from carrel_schema.history import Report
from carrel_schema.objects import Department, Limits, ReasonInfo, Resources, Workload
from carrel_schema.wire import Remedy


def person(name: str, *projects: str, scopes: Sequence[str] = (identity.USE,)) -> Principal:
    groups = frozenset(group_of(project) for project in projects)
    return Principal(name=name, kind="user", groups=groups, scopes=frozenset(scopes))


class FakeIdentity:
    def __init__(self) -> None:
        self.down = False
        self.asked = 0
        self.forgotten: list[str] = []
        spawner = Principal("spawner", "service", frozenset(), frozenset({identity.SPAWN}))
        scraper = Principal("scraper", "service", frozenset(), frozenset({identity.METRICS}))
        gateway = Principal("gateway", "service", frozenset(), frozenset({identity.GATEWAY}))
        bot = Principal(
            "bot", "service", frozenset({group_of("vision")}), frozenset({identity.USE})
        )
        people = [
            person("ada", "vision"),
            person("bea", "vision"),
            person("carl", "speech"),
            person("nobody"),
            person("narrow", "vision", scopes=()),
            person("root", scopes=(identity.USE, identity.ADMIN)),
            person("rae", scopes=(identity.USE, identity.MANAGE)),
            spawner,
            scraper,
            gateway,
            bot,
        ]
        self.tokens = {f"{one.name}-token": one for one in people}

    async def user_for_token(self, token: str) -> Principal | None:
        self.asked += 1
        if self.down:
            raise IdentityUnavailable("the Hub does not answer")
        return self.tokens.get(token)

    def forget(self, user: str) -> None:
        self.forgotten.append(user)


class FakeMembership:
    def __init__(self) -> None:
        self.down = False
        self.groups: dict[str, set[str]] = {"vision": {"ada", "bea"}, "speech": {"carl"}}
        self.hub_users = {"ada", "bea", "carl", "dora"}
        self.admins = {"root"}

    def _check(self) -> None:
        if self.down:
            raise IdentityUnavailable("the Hub does not answer")

    async def users(self, project: str) -> Sequence[str]:
        self._check()
        return sorted(self.groups.get(project, ()))

    async def includes(self, project: str, user: str) -> bool:
        return user in await self.users(project)

    async def groups_of(self, user: str) -> Collection[str]:
        self._check()
        return {group_of(name) for name, users in self.groups.items() if user in users}

    async def administers(self, user: str) -> bool:
        self._check()
        return user in self.admins

    async def add(self, project: str, user: str) -> None:
        self._check()
        if user not in self.hub_users:
            raise UnknownHubUser(user)
        self.groups.setdefault(project, set()).add(user)

    async def remove(self, project: str, user: str) -> None:
        self._check()
        self.groups.get(project, set()).discard(user)

    async def create_group(self, project: str) -> None:
        self._check()
        self.groups.setdefault(project, set())

    async def delete_group(self, project: str) -> None:
        self._check()
        self.groups.pop(project, None)


class FakeAgents:
    """Agents on nodes with tokens such as ``agent-node-1``."""

    def __init__(self) -> None:
        self.reports: list[tuple[str, NodeReport]] = []
        self.exchanges: list[tuple[str, MigReport]] = []

    async def node_of(self, token: str) -> str | None:
        return token.removeprefix("agent-") if token.startswith("agent-") else None

    def take(self, node: str, report: NodeReport) -> MemoryLimits:
        self.reports.append((node, report))
        part = MemoryLimit(pod="pod-uid", device="GPU-0", memory_mib=4096)
        return MemoryLimits(limits=(part,))

    async def exchange(self, node: str, report: MigReport) -> MigOrders:
        self.exchanges.append((node, report))
        order = MigOrder(id="o1", device="GPU-0", profile="1g.10gb", slots=1)
        return MigOrders(orders=() if report.results else (order,))


COLORS = {"vision": 4, "speech": 7}


class FakeSubscription:
    def __init__(self, live: "FakeLive") -> None:
        self._live = live
        self.queue: asyncio.Queue[LiveEvent | None] = asyncio.Queue()

    async def next(self) -> LiveEvent | None:
        return await self.queue.get()

    def close(self) -> None:
        self._live.subscriptions.remove(self)


def device(index: int, *holders: DeviceHolder) -> DeviceView:
    return DeviceView(
        index=index,
        uuid=f"GPU-{index}",
        name="A10",
        memory_mib=24_576,
        memory_used_mib=1024,
        utilization=0.5,
        power_watts=200.0,
        temperature_c=60,
        simulated=True,
        broken=False,
        message="",
        allocated_milli=1000 * len(holders),
        idle_since=None,
        conditions=("NVLink 3 is down",),
        holders=holders,
    )


def holder(project: str, name: str, user: str) -> DeviceHolder:
    return DeviceHolder(
        uid=f"uid-{name}",
        name=name,
        project=project,
        user=user,
        kind="training",
        gpu_milli=1000,
        borrowed=True,
        state="running",
        since=5.0,
        color=COLORS[project],
        utilization=0.25,
        memory_used_mib=512,
    )


def waits(project: str, name: str, user: str, position: int) -> QueueEntry:
    foreign = "speech" if project == "vision" else "vision"
    return QueueEntry(
        position=position,
        uid=f"uid-{name}",
        name=name,
        project=project,
        user=user,
        kind="training",
        resources=Resources(gpu_milli=2000),
        tasks=1,
        waits_since=100.0,
        reason=waiting_reason(foreign, f"{foreign}-secret-job", f"{foreign}-secret-user"),
        color=COLORS[project],
    )


def waiting_reason(project: str, name: str, user: str) -> ReasonInfo:
    """A reason as the reconciler stores it: with names, and its nameless twin."""
    return ReasonInfo(
        token="WaitsForRoom",
        cls="not-now",
        sentence=f"Waiting for 2 GPUs: {name} of {user} holds them.",
        help=f"It starts when {name} ends.",
        data={
            "resource": "gpu",
            "requested": 2000,
            "short": 2000,
            "project": "",
            "holders": [
                {
                    "project": project,
                    "uid": f"uid-{name}",
                    "name": name,
                    "user": user,
                    "amount": 2000,
                    "borrowed": True,
                    "since": 5.0,
                }
            ],
            "sentence_without_names": f"Waiting for 2 GPUs: a member of `{project}` holds them.",
        },
    )


class FakeLive:
    """The running scheduler, told by tests what to say."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.subscriptions: list[FakeSubscription] = []
        self.reports: list[tuple[str, Report]] = []
        self.activities: list[tuple[str, str, Activity]] = []
        self.visits: list[tuple[str, float | None]] = []
        self.claims: list[dict[str, Any]] = []
        self.never_reason: ReasonInfo | None = None
        self.not_accepted: NotAccepted | None = None
        self.gpu_use_of: dict[str, GpuUseSeries] = {}
        self.forecast_reason = waiting_reason("speech", "speech-secret-job", "speech-secret-user")
        self.remedies_of: dict[str, Sequence[Remedy]] = {}
        self.asked_remedies: list[str] = []
        self.previewed: list[bytes] = []
        self.told_faults = Faults()
        self.divided_gpus = ""
        self.places: dict[str, int] = {}
        self.node_group = ""

    def only_instances(self) -> bool:
        return False

    def mig_model(self) -> str:
        return self.divided_gpus

    def uncordon(self, node: str, index: int) -> bool:
        return (node, index) == ("node-1", 1)

    def nodes(self) -> Sequence[NodeView]:
        devices = (
            device(0, holder("vision", "vision-secret-job", "vision-secret-user")),
            device(1, holder("speech", "speech-secret-job", "speech-secret-user")),
        )
        node = NodeView(
            name="node-1",
            status="ready",
            simulated=True,
            driver="",
            cpu_milli=8000,
            cpu_allocated_milli=2000,
            memory_bytes=2**34,
            memory_allocated_bytes=2**31,
            gpu_milli=2000,
            gpu_allocated_milli=2000,
            largest_free_gpus=0,
            devices=devices,
            group=self.node_group,
        )
        return [node]

    def queue(self) -> Sequence[QueueEntry]:
        return [
            waits("speech", "speech-waiting-job", "carl", 1),
            waits("vision", "vision-waiting-job", "ada", 2),
        ]

    def positions(self) -> Mapping[str, int]:
        return self.places

    def faults(self) -> Faults:
        return self.told_faults

    def pods(self) -> PodCounts | None:
        pending = {"active": 2, "gated": 1, "unschedulable": 0}
        attempts = {"scheduled": 7, "unschedulable": 3, "error": 1}
        return PodCounts(pending=pending, attempts=attempts, victims=4)

    def project_use(self, name: str = "") -> Mapping[str, ProjectUse]:
        use = ProjectUse(
            name="vision",
            gpu_allocated_milli=3000,
            gpu_borrowed_milli=1000,
            gpu_waiting_milli=5000,
            cpu_allocated_milli=3000,
            memory_allocated_bytes=2**30,
            fair_share_gpu_milli=2000,
            running=3,
            waiting=5,
        )
        return {"vision": use} if name in ("", "vision") else {}

    def gpu_use(self, uid: str) -> GpuUseSeries | None:
        return self.gpu_use_of.get(uid)

    def unsupported_field(self, workload: Workload) -> UnsupportedField | None:
        divided = mig.model_of(self.divided_gpus) if self.divided_gpus else None
        return on_machine(workload, divided)

    def never(self, workload: Workload) -> ReasonInfo | None:
        return self.never_reason

    def forecast(self, workload: Workload) -> ReasonInfo:
        return self.forecast_reason

    def remedies(self, uid: str) -> Sequence[Remedy]:
        self.asked_remedies.append(uid)
        return self.remedies_of.get(uid, ())

    def preview_project(self, name: str, spec_json: bytes) -> ProjectImpact:
        self.previewed.append(spec_json)
        return ProjectImpact(would_start=("vision/a",), would_give_way=("speech/b",))

    def preview_projects(self, specs_json: Mapping[str, bytes]) -> ProjectImpact:
        self.previewed += specs_json.values()
        return ProjectImpact(would_start=("vision/a",), would_give_way=("speech/b",))

    def preview_department(self, department: Department) -> ProjectImpact:
        self.previewed.append(msgspec.json.encode(department.spec))
        return ProjectImpact(would_start=("vision/a",), would_give_way=("speech/b",))

    async def report(self, workload_uid: str, report: Report) -> None:
        await self._ledger.get_by_uid(Workload, workload_uid)
        self.reports.append((workload_uid, report))

    async def activity(self, user: str, server_name: str, activity: Activity) -> Limits:
        if server_name == "gone":
            raise ObjectNotFound(server_name)
        self.activities.append((user, server_name, activity))
        return Limits(stops_at=1000.0, stops_because="Idle", warn_at=400.0)

    def visited(self, workload_uid: str, at: float | None) -> None:
        self.visits.append((workload_uid, at))

    async def extend(self, workload_uid: str) -> Limits:
        if self.not_accepted is not None:
            raise self.not_accepted
        return Limits(extended_until=5000.0)

    async def claim(
        self,
        workload_uid: str,
        *,
        command: Sequence[str],
        environment: Mapping[str, str],
        secret_environment: Mapping[str, str],
        working_dir: str,
        port: int | None,
        external: bool = False,
    ) -> Workload:
        if self.not_accepted is not None:
            raise self.not_accepted
        told = {"command": list(command), "port": port, "external": external}
        self.claims.append({"uid": workload_uid, **told})
        return await self._ledger.get_by_uid(Workload, workload_uid)

    def events(self) -> FakeSubscription:
        subscription = FakeSubscription(self)
        self.subscriptions.append(subscription)
        return subscription

    def publish(self, event: LiveEvent | None) -> None:
        for subscription in self.subscriptions:
            subscription.queue.put_nowait(event)


class FakeTerminal:
    """A shell that repeats in capitals what it is told, until ``exit``."""

    def __init__(self) -> None:
        self.sizes: list[tuple[int, int]] = []
        self.closed = False
        self._output: asyncio.Queue[bytes] = asyncio.Queue()
        self._output.put_nowait("grüß".encode()[:3])
        self._output.put_nowait("grüß".encode()[3:])

    async def read(self) -> bytes:
        return await self._output.get()

    async def write(self, data: bytes) -> None:
        self._output.put_nowait(b"" if data.strip() == b"exit" else data.upper())

    async def resize(self, rows: int, columns: int) -> None:
        self.sizes.append((rows, columns))

    async def close(self) -> int:
        self.closed = True
        return 3


class FakeEngine:
    """Logs and terminals; tests say what they hold."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = [b"one\n", b"two\n"]
        self.endless = False
        self.followed_ends = False
        self.broken = False
        self.produced = 0
        self.asked: dict[str, Any] = {}
        self.closed_logs = 0
        self.terminals: list[tuple[TaskId, Sequence[str], FakeTerminal]] = []

    async def start(self, task: TaskSpec) -> None:
        raise NotImplementedError

    def interrupt_start(self, task: TaskId) -> None:
        raise NotImplementedError

    async def stop(self, task: TaskId, grace_seconds: float) -> None:
        raise NotImplementedError

    async def list(self) -> Sequence[TaskStatus]:
        return []

    def watch(self) -> AsyncIterator[TaskStatus]:
        raise NotImplementedError

    async def forget(self, task: TaskId) -> None:
        raise NotImplementedError

    async def remove_workload(self, workload_uid: str) -> None:
        raise NotImplementedError

    async def logs(self, workload_uid: str, request: LogRequest) -> AsyncIterator[bytes]:
        if request.index > 0:
            raise UnknownTask(f"{workload_uid} has no task {request.index}")
        self.asked = {
            "tail": request.tail_lines,
            "follow": request.follow,
            "timestamps": request.timestamps,
        }
        try:
            for piece in self.pieces:
                yield piece
            if self.broken:
                raise OSError("the disk is gone")
            while self.endless:
                self.produced += 1
                await asyncio.sleep(0)
                yield b"x" * 65_536
            if request.follow and not self.followed_ends:
                await asyncio.Event().wait()
        finally:
            self.closed_logs += 1

    async def exec(self, task: TaskId, command: Sequence[str]) -> FakeTerminal:
        terminal = FakeTerminal()
        self.terminals.append((task, command, terminal))
        return terminal

    async def close(self) -> None:
        return None
