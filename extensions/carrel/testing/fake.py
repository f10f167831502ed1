"""The fake scheduler as tests use it: start and stop, people, and the verbs that move workloads."""

import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar
from urllib.parse import quote

from aiohttp import web

from carrel.client.loop import BackgroundLoop
from carrel.testing.server import Server
from carrel.testing.state import Json, SchedulerState
from carrel_schema.code import CodeFolder

T = TypeVar("T")


class FakeScheduler:
    """A scheduler in memory, in a thread of its own. Use as a context manager.

    Args:
        people: users and the projects they are members of; the projects are made, with no quota.
        admins: users who may do everything.
        tcp: listen on a loopback port instead of a Unix socket.
        now: the clock, in epoch seconds.

    Attributes:
        url: what to give to a client.
        requests: ``(method, path)`` of all requests so far.
    """

    def __init__(
        self,
        people: Mapping[str, Sequence[str]] | None = None,
        admins: Iterable[str] = ("root",),
        *,
        tcp: bool = False,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._people = {"ada": ["vision"]} if people is None else people
        self._admins, self._tcp, self._now = set(admins), tcp, now
        self.url = ""

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="carrel-")
        self._background = BackgroundLoop("carrel-fake")
        try:
            self._background.run(self._start())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.end_streams()
        self._background.run(self._runner.cleanup())
        self._end()

    def _end(self) -> None:
        self._background.stop()
        self._folder.cleanup()

    async def _start(self) -> None:
        self._state = SchedulerState(self._now)
        self._state.admins = self._admins
        for user, projects in self._people.items():
            self._state.tokens[self.token(user)] = user
            for project in projects:
                if project not in self._state.projects:
                    self._state.add_project({"name": project}, [])
                self._state.members[project].append(user)
        for user in self._admins:
            self._state.tokens[self.token(user)] = user
        self._server = Server(self._state)
        self._runner = web.AppRunner(self._server.app, shutdown_timeout=0.5)
        await self._runner.setup()
        if self._tcp:
            site = web.TCPSite(self._runner, "127.0.0.1", 0)
            await site.start()
            port = self._runner.addresses[0][1]
            self.url = f"http://127.0.0.1:{port}/services/carrel"
        else:
            socket = str(Path(self._folder.name) / "api.sock")
            await web.UnixSite(self._runner, socket).start()
            self.url = f"http+unix://{quote(socket, safe='')}/services/carrel"

    def token(self, user: str) -> str:
        """The token of a user."""
        return f"token-of-{user}"

    @property
    def alerts(self) -> list[Json]:
        """The firing alerts, as tests set them."""
        return self._state.alerts

    @property
    def samples(self) -> Json:
        """The answer to ``GET /samples``, of any subject."""
        return self._state.samples

    @property
    def budgets(self) -> dict[str, Json]:
        """Budgets by scope."""
        return self._state.budgets

    @property
    def subscriptions(self) -> dict[str, Json]:
        """The subscriptions of people to news of their own work, by name."""
        return self._state.subscriptions

    @property
    def retention(self) -> Json:
        """The report of retention, which tests fill."""
        return self._state.retention

    @property
    def cluster_access(self) -> Json:
        """The facts of a kubeconfig, which tests fill; empty: there is no cluster."""
        return self._state.cluster_access

    @property
    def health(self) -> Json:
        """The report of health, which tests fill."""
        return self._state.health

    @property
    def alerting(self) -> dict[tuple[str, str], Json]:
        """Rules, silences and channels, by resource and name."""
        return self._state.alerting

    @property
    def departments(self) -> dict[str, Json]:
        """Departments by name."""
        return self._state.departments

    @property
    def access_rules(self) -> list[Json]:
        """The access rules: users and groups, each with a role and a scope."""
        return self._state.access_rules

    @property
    def people(self) -> dict[str, Json]:
        """The people who may sign in, by name."""
        return self._state.people

    @property
    def identities(self) -> dict[str, Json]:
        """The Hub's reports of people's numeric users."""
        return self._state.identities

    def hide_directory_groups(self, *, away: bool) -> None:
        """Answer no question about the table of groups, or all again."""
        self._do(lambda: setattr(self._state, "directory_groups_away", away))

    @property
    def directory_groups(self) -> dict[str, Json]:
        """The projects and rights that groups of the directory give, by group."""
        return self._state.directory_groups

    @property
    def catalogue(self) -> list[Json]:
        """Entries of the model catalogue: what it answers."""
        return self._state.catalogue

    @property
    def node_groups(self) -> dict[str, Json]:
        """Groups of nodes by name."""
        return self._state.node_groups

    @property
    def documents(self) -> dict[tuple[str, str, str], Json]:
        """Policies and templates by sort, scope and name."""
        return self._state.documents

    @property
    def assets(self) -> dict[tuple[str, str, str], Json]:
        """Assets by type, scope and name."""
        return self._state.assets

    @property
    def service_accounts(self) -> dict[str, Json]:
        """Service accounts by name."""
        return self._state.service_accounts

    @property
    def usage_facts(self) -> Json:
        """The answer of use except for names: items, currency, times, GPU-hours; to be changed."""
        return self._state.usage_facts

    @property
    def audit(self) -> list[Json]:
        """Entries of the audit log, the oldest first; change it."""
        return self._state.audit

    @property
    def effective_rules(self) -> Json:
        """The answer of rules of policies for all work, by the path of a field; to be changed."""
        return self._state.effective_rules

    @property
    def project_rules(self) -> dict[str, Json]:
        """The same answer for the work of one project; to be changed."""
        return self._state.project_rules

    @property
    def requests(self) -> list[tuple[str, str]]:
        """The requests so far."""
        return self._do(lambda: list(self._server.requests))

    @property
    def activities(self) -> list[Json]:
        """The heartbeats of workspaces so far."""
        return self._do(lambda: list(self._server.activities))

    @property
    def reports(self) -> list[tuple[str, str, Json]]:
        """All reports so far: project, name, body."""
        return self._do(lambda: list(self._state.reports))

    def uploaded(self, digest: str) -> CodeFolder:
        """The list of files of a folder that was uploaded."""
        return self._state.folders[digest]

    def workload(self, project: str, name: str) -> Json:
        """A workload as it looks on the wire."""
        return self._do(lambda: self._state.find(project, name))

    def secrets(self, project: str, name: str) -> dict[str, str]:
        """The secret environment that a workload was given, which no answer shows."""
        return self._do(lambda: dict(self._state.secrets.get((project, name), {})))

    def files(self, project: str, name: str) -> dict[str, str]:
        """The files that a workload brought along, of which answers show only the sizes."""
        return self._do(lambda: dict(self._state.files.get((project, name), {})))

    def workloads(self) -> list[Json]:
        """All workloads, as they look on the wire."""
        return self._do(lambda: list(self._state.workloads.values()))

    def project(self, name: str, **fields: Any) -> Json:
        """Make or change a project: ``quota={"gpus": 2}``, ``use={...}``."""

        def change() -> Json:
            if name not in self._state.projects:
                self._state.add_project({"name": name}, [])
            return self._state.change_project(name, fields)

        return self._do(change)

    def quota_findings(self, *findings: Mapping[str, Any]) -> None:
        """Set what does not fit together in quotas, in the wire form."""
        self._do(lambda: self._state.quota_findings.extend(dict(one) for one in findings))

    def nodes(self, *nodes: Mapping[str, Any]) -> None:
        """Set the nodes, in the wire form."""
        self._do(lambda: self._state.nodes.__setitem__(slice(None), [dict(n) for n in nodes]))

    def gpu_use(self, project: str, name: str, points: Sequence[Mapping[str, float]]) -> None:
        """Say what the GPUs of a workload did: ``at``, ``gpus``, ``memory_mib`` of each point."""
        told = [dict(one) for one in points]
        self._do(lambda: self._state.gpu_use.update({self._uid(project, name): told}))

    def _uid(self, project: str, name: str) -> str:
        return str(self._state.find(project, name)["uid"])

    def faults(self, **faults: Any) -> None:
        """Set what is set aside and violated, in the wire form."""
        self._do(lambda: self._state.faults.update(faults))

    def submit(self, project: str, name: str, user: str = "ada", **spec: Any) -> Json:
        """Create a Pending workload, as if ``user`` had sent it."""
        body = {"project": project, "name": name, **spec}
        return self._do(lambda: self._state.create(body, user))

    def status(self, project: str, name: str, **changes: Any) -> Json:
        """Change a workload's status, whatever it is; listeners get an event."""
        return self._do(lambda: self._state.change(project, name, changes))

    def wait(self, project: str, name: str, sentence: str, why: str = "WaitsForRoom") -> Json:
        """Give a Pending workload its reason; ``why`` is its token."""
        reason = {"token": why, "cls": "not-now", "sentence": sentence}
        return self.status(project, name, phase="pending", reason=reason)

    def remedies(
        self, project: str, name: str, *items: Mapping[str, Any], refused: bool = False
    ) -> None:
        """Set the changes that would unblock a waiting workload; ``refused``: answer with 429."""
        found = None if refused else [*map(dict, items)]
        self._do(lambda: self._state.remedies.update({(project, name): found}))

    def run(
        self, project: str, name: str, *, node: str = "node-1", devices: Sequence[int] = ()
    ) -> Json:
        """Let it run."""
        now, attempt = self._now(), self.workload(project, name)["status"]["attempt"]
        task = {"index": 0, "attempt": attempt, "node": node, "devices": list(devices)}
        return self.status(
            project,
            name,
            phase="running",
            reason=None,
            started_at=now,
            tasks=[task | {"pid": 4711, "started_at": now}],
        )

    def preempt(
        self, project: str, name: str, *, for_project: str, rule: str = "reclaim", lost: float = 0.0
    ) -> Json:
        """Preempt it: a training is Pending again, a workspace is stopped."""
        found = self.workload(project, name)
        status, training = found["status"], found["spec"]["kind"] == "training"
        facts = {"at": self._now(), "rule": rule, "for_project": for_project, "for_workload": ""}
        sentence = f"Gave its place back to `{for_project}`."
        return self.status(
            project,
            name,
            phase="pending" if training else "stopped",
            tasks=[],
            attempt=status["attempt"] + 1,
            preemptions=status.get("preemptions", 0) + 1,
            reason={"token": "Reclaimed", "cls": "evicted", "sentence": sentence},
            last_preemption=facts | {"lost_seconds": lost},
        )

    def keep(self, project: str, name: str, files: Mapping[str, bytes]) -> None:
        """Give a workload artifacts, by path."""
        self._state.artifacts[project, name] = dict(files)

    def register(self, project: str, name: str, version: int, **facts: Any) -> None:
        """Give a project a version of a model."""
        model = {"project": project, "name": name, "version": version, **facts}
        self._state.models.setdefault(project, []).append(model)

    def finish(self, project: str, name: str, exit_code: int = 0) -> Json:
        """Let it end by itself."""
        reason = {"token": "Failed", "sentence": f"Ended with exit code {exit_code}."}
        phase = "failed" if exit_code else "succeeded"
        done = self.status(
            project,
            name,
            phase=phase,
            reason=reason if exit_code else None,
            ended_at=self._now(),
        )
        self._wake()
        return done

    def stop(self, project: str, name: str, why: str, sentence: str) -> Json:
        """Stop it as a limit would (``TimedOut``, ``Idle``)."""
        reason = {"token": why, "sentence": sentence}
        return self.status(project, name, phase="stopped", reason=reason, tasks=[])

    def report(self, project: str, name: str, **report: Any) -> None:
        """Take a report as if the job had sent it."""
        self._do(lambda: self._state.take_report(project, name, report))

    def hand_back(self, project: str, name: str, content: bytes) -> None:
        """Keep a result as if the job had sent it (``carrel.results`` makes one)."""
        self._do(lambda: self._state.results.__setitem__((project, name), content))

    def log(self, project: str, name: str, *lines: str) -> None:
        """Let it print lines."""
        now = self._now()
        self._do(lambda: self._state.logs[project, name].extend((now, line) for line in lines))
        self._wake()

    def fail_next(self, *statuses: int) -> None:
        """Answer the next requests with these statuses; 0 hangs up without an answer."""
        self._do(lambda: self._server.failures.extend(statuses))

    def end_streams(self) -> None:
        """Break all event streams and followed logs, as a restart does."""

        def end() -> None:
            for listener in self._state.listeners:
                listener.put_nowait(None)

        self._do(end)

    def _wake(self) -> None:
        async def wake() -> None:
            async with self._state.changed:
                self._state.changed.notify_all()

        self._background.run(wake())

    def _do(self, function: Callable[[], T]) -> T:
        return self._background.call(function)
