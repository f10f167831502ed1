"""The dependencies of the API, passed in at its start. Nothing is global."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from prometheus_client.registry import Collector

from carrel_scheduler.alerts.controller import AlertController
from carrel_scheduler.api.code_store import CodeStore
from carrel_scheduler.api.principals.access_rules import AccessRules
from carrel_scheduler.api.principals.identity import Identity, Membership
from carrel_scheduler.api.principals.jobs import JobLimits
from carrel_scheduler.api.principals.users import NoUsers, Users
from carrel_scheduler.api.results import Results
from carrel_scheduler.engines.contract import Engine
from carrel_scheduler.engines.files.contract import Files, NoFiles
from carrel_scheduler.engines.node_group_store import NodeGroupStore
from carrel_scheduler.ledger.records import Ledger
from carrel_scheduler.node.contract import MemoryLimits, MigOrders, MigReport, NodeReport
from carrel_scheduler.policy.budgets import BudgetUse
from carrel_scheduler.workloads.contract import Live
from carrel_scheduler.workloads.controllers.experiments.trials import TrialController
from carrel_scheduler.workloads.controllers.inference.loads import Loads
from carrel_scheduler.workloads.launch.task_specs import TaskTokens
from carrel_scheduler.workloads.retention import RetentionRules
from carrel_schema.governance.kubeconfig import ClusterAccess


@dataclass(frozen=True, slots=True)
class StreamTiming:
    """Intervals and bounds of event streams; times in seconds.

    Attributes:
        keep_alive: a comment line after so much silence; proxies close silent connections.
        places: how often the places of pending work in the queue are compared with those sent.
        verify: how often the caller's token and projects are looked up again.
        verify_timeout: a stream ends if its caller could not be verified for so long.
        first_piece: how long a log may take to refuse before its answer begins.
        per_user: how many streams one user may hold open; a browser tab takes one or two.
    """

    keep_alive: float = 15.0
    places: float = 5.0
    verify: float = 10.0
    verify_timeout: float = 60.0
    first_piece: float = 0.25
    per_user: int = 64


class NodeAgents(Protocol):
    """The agents on the nodes of a cluster."""

    async def node_of(self, token: str) -> str | None:
        """The node of the agent with this token; ``None`` if it is no agent's."""
        ...

    def take(self, node: str, report: NodeReport) -> MemoryLimits:
        """Handle a report of the agent on a node, and answer which memory it is to limit."""
        ...

    async def exchange(self, node: str, report: MigReport) -> MigOrders:
        """Take an agent's report of MIG instances, and answer which ones it is to make."""
        ...


class NoNodeAgents:
    """The node agents of one machine: it has none."""

    async def node_of(self, _token: str) -> str | None:
        """None: no token belongs to a node agent."""
        return None

    def take(self, node: str, _report: NodeReport) -> MemoryLimits:
        """Refuse every report."""
        raise LookupError(node)

    async def exchange(self, node: str, _report: MigReport) -> MigOrders:
        """Refuse every question."""
        raise LookupError(node)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiDependencies:
    """The dependencies of the API.

    Attributes:
        clock: epoch seconds.
        ids: a new workload uid each time.
        results: what jobs handed back.
        code: what was uploaded for jobs.
        files: of running and ended work.
        retention: how long those are kept.
        loads: what gateways tell of requests.
        trouble: what is in the way of work as a whole, in words; empty for nothing.
        reconciler_metrics: shown with the API's own.
        cluster_access: how people reach the cluster's API server; ``None``: not at all.
        runai_metrics: whether metrics have Run:ai's names as well.
        job_limits: what jobs may submit.
        node_agents: what reports the devices of a cluster's nodes.
        node_groups: where definitions of groups of nodes are kept.
        alerts: looks for conditions that people should know of; ``None``: nobody does.
        rules: who has which role where; made with the application.
        budgets: what is used of them; ``None``: the application asks by itself.
        users: people, as the Hub keeps them.
        prefix: where the Hub mounts the service, without a slash at the end.
    """

    ledger: Ledger
    live: Live
    engine: Engine
    identity: Identity
    membership: Membership
    trials: TrialController
    clock: Callable[[], float]
    ids: Callable[[], str]
    task_tokens: TaskTokens
    results: Results
    code: CodeStore
    node_groups: NodeGroupStore
    rules: AccessRules | None = None
    alerts: AlertController | None = None
    budgets: BudgetUse | None = None
    files: Files = field(default_factory=NoFiles)
    retention: RetentionRules = field(default_factory=RetentionRules)
    users: Users = field(default_factory=NoUsers)
    prefix: str = "/services/carrel"
    timing: StreamTiming = field(default_factory=StreamTiming)
    trouble: Callable[[], str] = str
    loads: Loads = field(default_factory=lambda: Loads(time.time))
    job_limits: JobLimits = field(default_factory=JobLimits)
    reconciler_metrics: Collector | None = None
    runai_metrics: bool = False
    node_agents: NodeAgents = field(default_factory=NoNodeAgents)
    cluster_access: ClusterAccess | None = None

    @property
    def access_rules(self) -> AccessRules:
        """The access rules; available once the application is built."""
        if self.rules is None:
            msg = "the application is not built"
            raise RuntimeError(msg)
        return self.rules
