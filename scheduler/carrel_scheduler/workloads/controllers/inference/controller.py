"""Endpoints: from a specification and the requests in flight to ready replicas.

``inference_plan`` decides; here is what it decides by (parts, probes, gateways' reports)
and what follows from it. Gateways read from the endpoint's status where requests go: a replica is
in ``targets`` from when it is ready until it terminates, at last as ``draining``.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from carrel_scheduler.workloads.controllers.contract import DesiredState, moved
from carrel_scheduler.workloads.controllers.inference import replicas as parts_of
from carrel_scheduler.workloads.controllers.inference.loads import Load, Loads
from carrel_scheduler.workloads.controllers.inference.plan import (
    Demand,
    Low,
    Replica,
    Situation,
    Steps,
    plan,
)
from carrel_scheduler.workloads.controllers.inference.probing import Prober, ReplicaRun
from carrel_scheduler.workloads.controllers.inference.status import status_of
from carrel_scheduler.workloads.state.ports import name_of
from carrel_schema.kinds import WorkloadKind
from carrel_schema.objects import TaskInfo, Workload, WorkloadStatus
from carrel_schema.sections import EndpointStatus, InferenceSpec, Target

TOLD_EVERY_SECONDS: Final = 2.0


@dataclass(slots=True)
class Memory:
    """State of an endpoint that may be lost in a restart."""

    low: Low | None = None
    told_at: float = 0.0


class Inference:
    """The controller of endpoints.

    Args:
        loads: gateways' reports.
        prober: finds out which replicas can serve.
        host_of: where the tasks of a node listen, by its name.
        prefix: path of the gateway.
    """

    kind: WorkloadKind = "inference"

    def __init__(
        self, loads: Loads, prober: Prober, host_of: Callable[[str], str], prefix: str
    ) -> None:
        self._loads, self._prober = loads, prober
        self._host_of, self._prefix = host_of, prefix
        self._memory: dict[str, Memory] = {}

    async def look(self, owner: Workload, parts: Sequence[Workload], now: float) -> DesiredState:
        """See ``Controller``."""
        uid = owner.meta.uid
        memory = self._memory.setdefault(uid, Memory())
        before = _resumed(owner, now)
        load = self._loads.of(uid)
        targets = self._targets(owner, parts, now)
        situation = _situation(owner, before, parts, targets, load, memory, now)
        steps = plan(situation, now)
        memory.low = steps.low
        targets = _after(targets, steps, now)
        status = status_of(owner, before, parts, situation, steps, targets, now)
        endpoint = status.endpoint or EndpointStatus()
        endpoint = msgspec.structs.replace(endpoint, url=self._url(owner))
        if self._may_tell(endpoint, load, memory, now, steps):
            endpoint = _told(endpoint, load)
        status.endpoint = endpoint
        gone = set(steps.remove)
        return DesiredState(
            status=status,
            changed=[parts_of.stopped(part) for part in parts if part.meta.uid in steps.end],
            deleted=[part.meta.uid for part in parts if part.meta.uid in gone],
            created=parts_of.new(owner, parts, endpoint.made, steps.create),
            look_again_at=steps.again_at,
        )

    async def removed(self, owner: Workload) -> None:
        """See ``Controller``."""
        self._memory.pop(owner.meta.uid, None)
        self._prober.keep_only(owner.meta.uid, ())

    def _url(self, owner: Workload) -> str:
        return f"{self._prefix}/{owner.meta.project}/{owner.meta.name}/"

    def _targets(self, owner: Workload, parts: Sequence[Workload], now: float) -> dict[str, Target]:
        """The ready replicas, by uid; starts the readiness probes of the others."""
        uid, spec = owner.meta.uid, owner.spec.inference or InferenceSpec()
        known = {one.uid: one for one in (owner.status.endpoint or EndpointStatus()).targets}
        found: dict[str, Target] = {}
        runs: set[ReplicaRun] = set()
        for part in parts:
            info = parts_of.task(part)
            if info is None or not info.ports or not parts_of.serves(part):
                continue
            run = ReplicaRun(part.meta.uid, info.attempt)
            runs.add(run)
            before = known.get(part.meta.uid)
            if before is not None and before.attempt == info.attempt:
                self._prober.know(uid, run)
                found[run.uid] = before
            elif self._prober.ready(uid, run):
                found[run.uid] = self._target(part, info, now)
            else:
                host = info.address or self._host_of(info.node)
                port = info.ports[name_of(part.spec.routes[0])]
                path = spec.readiness_path if parts_of.revision(part) == spec.revision else ""
                self._prober.watch(uid, run, host, port, path)
        self._prober.keep_only(uid, runs)
        return found

    def _target(self, part: Workload, info: TaskInfo, now: float) -> Target:
        return Target(
            uid=part.meta.uid,
            attempt=info.attempt,
            host=info.address or self._host_of(info.node),
            ports=info.ports,
            revision=parts_of.revision(part),
            since=now,
        )

    def _may_tell(
        self, endpoint: EndpointStatus, load: Load, memory: Memory, now: float, steps: Steps
    ) -> bool:
        """Whether numbers of requests are written now; else a look is due when they may be."""
        if _told(endpoint, load) == endpoint:
            return False
        if now < memory.told_at + TOLD_EVERY_SECONDS:
            steps.by(memory.told_at + TOLD_EVERY_SECONDS)
            return False
        memory.told_at = now
        return True


def _told(endpoint: EndpointStatus, load: Load) -> EndpointStatus:
    return msgspec.structs.replace(
        endpoint,
        in_flight=load.in_flight,
        requests_per_second=round(load.rate, 1),
        latency_p50_seconds=load.took(0.5),
        latency_p99_seconds=load.took(0.99),
        last_request_at=load.last_request_at or endpoint.last_request_at,
    )


def _resumed(owner: Workload, now: float) -> WorkloadStatus:
    """The endpoint's status, reset after it was resumed or its replicas' specification changed."""
    spec, status = owner.spec, owner.status
    endpoint = status.endpoint or EndpointStatus()
    revision = (spec.inference or InferenceSpec()).revision
    fresh = msgspec.structs.replace(status)
    if status.phase == "stopped" and spec.resumes > status.observed_resumes and not spec.suspend:
        fresh = moved(owner, "pending", now)
        fresh.observed_resumes, fresh.failures, fresh.not_before = spec.resumes, 0, None
    if endpoint.tried != revision:
        fresh.failures, fresh.not_before = 0, None
        fresh.endpoint = msgspec.structs.replace(endpoint, tried=revision)
    return fresh


def _situation(
    owner: Workload,
    before: WorkloadStatus,
    parts: Sequence[Workload],
    targets: Mapping[str, Target],
    load: Load,
    memory: Memory,
    now: float,
) -> Situation:
    endpoint = before.endpoint or EndpointStatus()
    begun = bool(endpoint.made) and before.phase != "stopped"
    resumed = begun and before.observed_resumes == owner.status.observed_resumes
    return Situation(
        spec=owner.spec.inference or InferenceSpec(),
        replicas=[_replica(part, targets, load, now) for part in parts],
        rest=owner.spec.suspend or before.phase == "stopped",
        wanted=endpoint.wanted if resumed else -1,
        demand=Demand(load.in_flight, load.last_request_at or endpoint.last_request_at),
        low=memory.low,
        heard=load.heard,
        failures=before.failures,
        counted=endpoint.counted,
        not_before=before.not_before,
        most_failures=owner.spec.backoff_limit,
    )


def _replica(part: Workload, targets: Mapping[str, Target], load: Load, now: float) -> Replica:
    uid = part.meta.uid
    state, since = parts_of.state(part, now)
    target = targets.get(uid)
    if target is not None and state == "starting":
        state, since = target.state, target.since
    return Replica(
        uid=uid,
        number=part.spec.part,
        revision=parts_of.revision(part),
        state=state,
        since=since,
        in_use=uid in load.targets,
    )


def _after(targets: Mapping[str, Target], steps: Steps, now: float) -> dict[str, Target]:
    """The targets of requests after these steps."""
    gone = {*steps.remove, *steps.end}
    return {
        uid: msgspec.structs.replace(one, state="draining", since=now)
        if uid in steps.drain
        else one
        for uid, one in targets.items()
        if uid not in gone
    }
