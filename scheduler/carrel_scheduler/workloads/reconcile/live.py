"""The running scheduler as the API reads it (``contract.Live``): from memory, no decisions."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Final

import msgspec

from carrel_scheduler.core import speculation
from carrel_scheduler.core.events import QueueSet, WorkloadQueued
from carrel_scheduler.core.reasons import Reason, Token
from carrel_scheduler.core.resources import MIB
from carrel_scheduler.core.speculation import RemedyKind
from carrel_scheduler.core.views import QueueUse
from carrel_scheduler.engines.external import NO_NODE_EVER, PodCounts
from carrel_scheduler.ledger.store import ObjectNotFound, VersionConflict
from carrel_scheduler.policy.inherited_rules import effective_rules
from carrel_scheduler.workloads.contract import (
    Activity,
    Faults,
    GpuUseSeries,
    NotAccepted,
    ProjectUse,
    QueueEntry,
    UnsupportedField,
)
from carrel_scheduler.workloads.launch import fitting
from carrel_scheduler.workloads.launch.fitting import Fitting
from carrel_scheduler.workloads.lifecycle import session_limits
from carrel_scheduler.workloads.nodes.node_views import NodeViews, color_of
from carrel_scheduler.workloads.reconcile import budget_priority, user_limits
from carrel_scheduler.workloads.reconcile.reconciler import Reconciler
from carrel_scheduler.workloads.state import reasons, remedies
from carrel_scheduler.workloads.state.cache import (
    CachedWorkload,
    department_event,
    project_event,
    queued_event,
)
from carrel_scheduler.workloads.state.events import (
    CheckLimits,
    CordonEnded,
    Listener,
    StatusChanged,
    Wake,
)
from carrel_schema.answers import (
    NodeView,
    ProjectImpact,
)
from carrel_schema.history import Report
from carrel_schema.kinds import KINDS, WorkloadKind
from carrel_schema.objects import Department, Limits, Project, ProjectSpec, ReasonInfo, Workload
from carrel_schema.wire import Remedy

# A forecast for work that has parts is one for its parts.
OF_PARTS: Final[Mapping[WorkloadKind, str]] = {
    "experiment": "Its first trial: ",
    "inference": "Its first replica: ",
    "schedule": "A run that began now: ",
}


class LiveState:
    """See the contract; one per scheduler. ``fits``: the checks of this installation."""

    def __init__(self, loop: Reconciler, fits: Fitting = fitting.on_machine) -> None:
        self._loop, self._fits = loop, fits

    def unsupported_field(self, workload: Workload) -> UnsupportedField | None:
        """The error of a workload that can never run here; else ``None``."""
        loop = self._loop
        return self._fits(workload) or fitting.unsupported_field(
            loop.external_pods, loop.cache.gpu_models, workload
        )

    def mig_model(self) -> str:
        """The GPU model that is divided into MIG instances on demand; empty without one."""
        return self._loop.cache.mig_model

    def only_instances(self) -> bool:
        """Whether no node gives out whole GPUs: all of a cluster are divided, of one model."""
        cache = self._loop.cache
        return bool(cache.mig_model and cache.counted_nodes)

    def faults(self) -> Faults:
        """Inputs that are set aside, and violated invariants."""
        quarantine, audit = self._loop.quarantine, self._loop.audit
        return Faults(
            set_aside=[
                one if one.name else replace(one, name=self._name_in(one.key))
                for one in quarantine.items
            ],
            skipped=dict(quarantine.counts),
            violated=sorted(audit.violated),
            violations=dict(audit.counts),
        )

    def _name_in(self, key: str) -> str:
        """``PROJECT/NAME`` of the live workload whose uid a key ends with; empty for none."""
        uid = key.rpartition(" ")[2]
        entry = self._loop.cache.get(uid)
        found = self._loop.composites.owner(uid) if entry is None else entry.workload
        return "" if found is None else f"{found.meta.project}/{found.meta.name}"

    def nodes(self) -> Sequence[NodeView]:
        """All nodes and devices."""
        loop = self._loop
        found = NodeViews(
            loop.cache, loop.handlers.nodes, loop.external_pods, loop.withheld, loop.clock()
        )
        return found.of(loop.state.node_views())

    def gpu_use(self, uid: str) -> GpuUseSeries | None:
        """The measured GPU use of a workload; ``None`` for an unknown workload."""
        entry = self._loop.cache.get(uid)
        if entry is None:
            return None
        return GpuUseSeries(project=entry.workload.meta.project, points=entry.gpu_series.points())

    def uncordon(self, node: str, index: int) -> bool:
        """Return a cordoned device to service; returns whether health checks had cordoned it."""
        if not self._loop.withheld.cordons.of(node, index):
            return False
        self._loop.enqueue(CordonEnded(node, index))
        return True

    def positions(self) -> Mapping[str, int]:
        """Places in the queue by uid, from 1, as of the last decision."""
        return self._loop.cache.latest_positions

    def queue(self) -> Sequence[QueueEntry]:
        """All waiting workloads in the order of service; external pods count, too."""
        cache = self._loop.cache
        waiting = [entry for entry in cache if entry.workload.status.phase == "pending"]
        positions, new = cache.positions, count(len(cache.positions) + 1)
        waiting.sort(
            key=lambda one: (
                positions.get(one.uid, len(positions) + 1),
                one.workload.meta.created_at,
            )
        )
        return [
            _queue_entry(
                positions.get(entry.uid) or next(new),
                entry,
                color_of(cache, entry.workload.meta.project),
            )
            for entry in waiting
        ]

    def pods(self) -> PodCounts | None:
        """External and unmanaged pods; ``None`` on one machine."""
        return self._loop.external_pods.counts()

    def project_use(self, name: str = "") -> Mapping[str, ProjectUse]:
        """Quota and use of all projects, or of one."""
        state, known = self._loop.state, self._loop.cache.projects
        if name:
            there = name in known and name in state.queues.slots
            return {name: self._project_use(state.project_use(name))} if there else {}
        uses = state.use_of_all()
        return {name: self._project_use(uses[name]) for name in state.projects() if name in known}

    def never(self, workload: Workload) -> ReasonInfo | None:
        """The reason why no node or quota can ever admit the workload; else ``None``.

        A project made a moment ago may not have arrived yet; then there is nothing to refuse by.
        """
        if workload.meta.project not in self._loop.cache.projects:
            return None
        if (beyond := user_limits.never(self._loop.cache, workload)) is not None:
            return beyond
        queued = self._queued(workload)
        others = NO_NODE_EVER if self._loop.external_pods.asks_for_nodes else ()
        reason = speculation.never(self._loop.state, queued, others)
        return None if reason is None else reasons.from_core(reason, workload.meta.project)

    def forecast(self, workload: Workload) -> ReasonInfo:
        """The answer of a dry run."""
        loop = self._loop
        if workload.meta.project not in loop.cache.projects:
            return reasons.project_is_coming(workload.meta.project)
        if (held_back := user_limits.forecast(loop.cache, workload)) is not None:
            return held_back
        lowered = budget_priority.scope_over(loop.cache, workload, loop.cache.used_up)
        workload.status.lowered_by = lowered
        queued = self._queued(workload, loop.external_pods.claims_of(workload))
        reason = speculation.forecast(loop.state, queued, loop.clock())
        found = reasons.from_core(reason, workload.meta.project)
        if self._awaits_nodes(queued, reason):
            found = reasons.waits_for_nodes(found)
        elif reason.token is not Token.STARTING:
            gpus = speculation.fewer_gpus(loop.state, queued, loop.clock())
            found = reasons.starts_with(found, gpus) if gpus else found
        if lowered:
            found = reasons.lowered(found, lowered)
        whose = OF_PARTS.get(workload.spec.kind, "")
        return msgspec.structs.replace(found, sentence=f"{whose}{found.sentence}")

    def remedies(self, uid: str) -> Sequence[Remedy]:
        """The changes that would unblock a waiting workload."""
        loop, entry = self._loop, self._loop.cache.get(uid)
        if entry is None or entry.holding or not entry.queued:
            return ()
        found = speculation.remedies(loop.state, uid, loop.clock())
        if not KINDS[entry.workload.spec.kind].may_choose:
            found = tuple(one for one in found if one.change is not RemedyKind.PREEMPTIBLE)
        return [remedies.from_core(one) for one in found]

    def _awaits_nodes(self, queued: WorkloadQueued, reason: Reason) -> bool:
        """Whether nodes would be asked for, as no node could hold it and its quota does."""
        there = self._loop.external_pods.asks_for_nodes and reason.token in NO_NODE_EVER
        return there and speculation.within_quota(self._loop.state, queued)

    def _queued(self, workload: Workload, claims: tuple[str, ...] = ()) -> WorkloadQueued:
        """The event that would queue it, with the nodes open to it that reach its volumes."""
        queued = queued_event(workload, self._loop.cache)
        return self._loop.external_pods.constrained(queued, claims)

    def preview_project(self, name: str, spec_json: bytes) -> ProjectImpact:
        """The changes that a project with this specification would make now."""
        return self.preview_projects({name: spec_json})

    def preview_projects(self, specs_json: Mapping[str, bytes]) -> ProjectImpact:
        """The changes that several projects, by name, would make now together."""
        cache, events, limits = self._loop.cache, [], dict[str, int | None]()
        for name, spec_json in specs_json.items():
            known = cache.projects.get(name)
            if known is None:
                raise ObjectNotFound(f"project {name}")
            spec = msgspec.json.decode(spec_json, type=ProjectSpec)
            events.append(project_event(Project(meta=known.meta, spec=spec), cache.departments))
            if user_limits.milli_of(spec) != user_limits.milli_of(known.spec):
                limits[name] = user_limits.milli_of(spec)
        entering, leaving = user_limits.changed_by(cache, self._loop.state, limits)
        return self._impact(*events, entering=entering, leaving=leaving)

    def preview_department(self, department: Department) -> ProjectImpact:
        """The changes that a department with these rules would make now."""
        if department.meta.name not in self._loop.cache.departments:
            return ProjectImpact()  # no project is in it yet
        return self._impact(department_event(department))

    def _impact(
        self,
        event: QueueSet,
        *others: QueueSet,
        entering: Sequence[CachedWorkload] = (),
        leaving: Sequence[CachedWorkload] = (),
    ) -> ProjectImpact:
        loop, claims = self._loop, self._loop.external_pods.claims_of
        starts, gives_way = speculation.impact(
            loop.state,
            event,
            loop.clock(),
            *others,
            entering=[self._queued(one.workload, claims(one.workload)) for one in entering],
            leaving=[one.uid for one in leaving],
        )
        return ProjectImpact(would_start=self._names(starts), would_give_way=self._names(gives_way))

    async def report(self, workload_uid: str, report: Report) -> None:
        """Take a job's report."""
        loop, entry = self._loop, self._entry(workload_uid)
        loop.reports.take(entry, report, loop.state, loop.clock())
        entry.reported_at = loop.clock()
        loop.publish("report", entry.workload, report)
        loop.enqueue(Wake())

    async def activity(self, user: str, server_name: str, activity: Activity) -> Limits:
        """Record a workspace's activity; returns the limits that apply soon."""
        entry = self._loop.cache.workspace(user, server_name)
        if entry is None:
            raise ObjectNotFound(f"{user} has no running workspace {server_name!r}")
        entry.activity = activity
        self._loop.enqueue(CheckLimits(entry.uid))
        return self._coming(entry)

    def visited(self, workload_uid: str, at: float | None) -> None:
        """Record when a workload's routes were last visited."""
        entry = self._loop.cache.get(workload_uid)
        if entry is None or at is None or at <= entry.visited_at:
            return
        entry.visited_at = at
        if entry.workload.status.limits is not None:
            self._loop.enqueue(CheckLimits(entry.uid))

    async def extend(self, workload_uid: str) -> Limits:
        """Keep a workspace for the project's extension."""
        entry = self._entry(workload_uid)
        if entry.workload.spec.kind != "workspace" or not session_limits.watched(entry):
            raise NotAccepted("not_running", "only a running workspace can be kept longer")
        now = self._loop.clock()
        rule, run = (
            session_limits.rule_of(self._loop.cache, entry),
            session_limits.run_of(entry, now),
        )
        if run.extensions >= rule.max_extensions:
            raise NotAccepted(
                "extension_refused",
                f"project {entry.workload.meta.project} allows {rule.max_extensions} extensions, "
                f"and this workspace has had {run.extensions}",
            )
        coming = session_limits.upcoming(rule, session_limits.extend(rule, run, now), now)
        entry.workload.status.limits = coming
        self._loop.enqueue(StatusChanged(entry.uid))
        return coming

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
        """Give an allocated workspace the command that it runs."""
        entry = self._entry(workload_uid)
        if entry.claim_until is None or not entry.needs_claim:
            raise NotAccepted("not_claimable", "this workspace holds no place that waits for it")
        await self._loop.ledger.set_secrets(workload_uid, secret_environment)
        while True:
            fresh = await self._loop.ledger.get_by_uid(Workload, workload_uid)
            fresh.spec.command = list(command)
            fresh.spec.environment = dict(environment)
            fresh.spec.working_dir = working_dir
            fresh.spec.port = port
            fresh.spec.external = external
            try:
                stored = await self._loop.ledger.update(fresh)
            except VersionConflict:
                continue
            break
        if entry.claim_until is None:
            raise NotAccepted("not_claimable", "its place was given back meanwhile")
        self._loop.claimed(entry, stored)
        return stored

    def events(self) -> Listener:
        """Subscribe to the event stream from now on."""
        return self._loop.stream.subscribe()

    def _entry(self, uid: str) -> CachedWorkload:
        entry = self._loop.cache.get(uid)
        if entry is None:
            raise ObjectNotFound(f"workload {uid} is not live")
        return entry

    def _names(self, uids: Sequence[str]) -> tuple[str, ...]:
        found = [self._loop.cache.get(uid) for uid in uids]
        return tuple(
            f"{entry.workload.meta.project}/{entry.workload.meta.name}" for entry in found if entry
        )

    def _coming(self, entry: CachedWorkload) -> Limits:
        now = self._loop.clock()
        rule, run = (
            session_limits.rule_of(self._loop.cache, entry),
            session_limits.run_of(entry, now),
        )
        return session_limits.upcoming(rule, run, now)

    def _project_use(self, use: QueueUse) -> ProjectUse:
        name = use.name
        return ProjectUse(
            name=name,
            gpu_allocated_milli=use.gpu_milli,
            gpu_borrowed_milli=use.gpu_borrowed_milli,
            gpu_waiting_milli=use.gpu_waiting_milli,
            cpu_allocated_milli=use.cpu_milli,
            memory_allocated_bytes=use.memory_mib * MIB,
            fair_share_gpu_milli=self._loop.cache.fair_share.get(name, 0),
            running=use.running,
            waiting=use.waiting,
            rules=effective_rules(*self._loop.cache.rules_of(name), self._loop.state.settings),
        )


def _queue_entry(place: int, entry: CachedWorkload, color: int | None) -> QueueEntry:
    meta, spec, status = entry.workload.meta, entry.workload.spec, entry.workload.status
    return QueueEntry(
        position=place,
        uid=meta.uid,
        name=meta.name,
        project=meta.project,
        user=spec.user,
        kind=spec.kind,
        resources=spec.resources,
        tasks=spec.tasks,
        waits_since=status.queued_at or meta.created_at,
        reason=status.reason,
        color=color,
    )
