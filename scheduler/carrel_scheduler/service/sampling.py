"""Sampling: what there is now, every minute; means of it in the ledger, as long as they are kept.

Off the path of decisions: it reads what pages read. Means of five minutes are written when they are
complete, those of an hour from them; what a restart cuts off is the mean of what was seen.
"""

import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from carrel_scheduler.ledger.samples import SampleStore
from carrel_scheduler.periodic import run_periodically
from carrel_scheduler.workloads.reconcile.live import LiveState
from carrel_scheduler.workloads.reconcile.reconciler import Reconciler
from carrel_schema.answers import NodeView
from carrel_schema.governance.retention import retention_of
from carrel_schema.objects import Project
from carrel_schema.samples import IDLE_SECONDS, Sample, Step, mean

log = logging.getLogger(__name__)
PAUSE_SECONDS: Final = 60.0
SHORT: Final[Step] = 300
LONG: Final[Step] = 3600
DAY_SECONDS: Final = 86_400.0
GIB: Final = 1024**3


class Sampler:
    """Takes samples and stores their means.

    Args:
        samples: where means are kept.
        take: what there is now, by subject.
        clock: epoch seconds.
        settings: of the ledger, which say how long means are kept; ``None``: as usual.
    """

    def __init__(
        self,
        samples: SampleStore,
        take: Callable[[], Mapping[str, Sample]],
        clock: Callable[[], float],
        settings: Callable[[], Awaitable[Mapping[str, Any]]] | None = None,
    ) -> None:
        self._samples, self._take, self._clock = samples, take, clock
        self._settings = settings
        self._seen: defaultdict[str, list[Sample]] = defaultdict(list)
        self._began: int | None = None

    async def run(self) -> None:
        """Sample again and again, until cancelled."""
        await run_periodically(self.once, PAUSE_SECONDS, log, "no sample was taken")

    async def once(self) -> None:
        """Take a sample; write the means of spans that have ended."""
        now = int(self._clock())
        begins = now - now % SHORT
        if self._began is None:
            await self._finish_hour(now)
        elif begins != self._began:
            await self._write(self._began, begins)
        self._began = begins
        for subject, sample in self._take().items():
            self._seen[subject].append(sample)

    async def _finish_hour(self, now: int) -> None:
        """Write the mean of the hour in which an earlier scheduler ended."""
        last = await self._samples.latest(SHORT)
        if last is not None and last - last % LONG != now - now % LONG:
            await self._write_hour(last - last % LONG)

    async def _write_hour(self, hour: int) -> None:
        parts = await self._samples.of_span(SHORT, hour, hour + LONG)
        await self._samples.add(LONG, hour, {one: mean(of) for one, of in parts.items()})

    async def _write(self, began: int, now: int) -> None:
        means = {subject: mean(seen) for subject, seen in self._seen.items() if seen}
        await self._samples.add(SHORT, began, means)
        self._seen.clear()  # what was not written is tried again
        hour = began - began % LONG
        if now - now % LONG != hour:
            await self._write_hour(hour)
            await self._prune(now)

    async def _prune(self, now: int) -> None:
        kept = retention_of({} if self._settings is None else await self._settings())
        for step, days in ((SHORT, kept.sample_days), (LONG, kept.hourly_sample_days)):
            await self._samples.prune(step, now - days * DAY_SECONDS)


class LiveSample:
    """The present values of a running scheduler."""

    def __init__(self, loop: Reconciler, live: LiveState) -> None:
        self._loop, self._live = loop, live

    def __call__(self) -> Mapping[str, Sample]:
        """The values by subject; see ``carrel_schema.samples``."""
        nodes, projects = self._live.nodes(), self._loop.cache.projects
        now = self._loop.clock()
        of_nodes = {f"node/{one.name}": of_node(one, now) for one in nodes}
        of_projects = self._projects(projects)
        found = {**of_nodes, **of_projects}
        for one in nodes:
            if one.group:
                _add(found, f"node-group/{one.group}", of_nodes[f"node/{one.name}"])
        for name, project in projects.items():
            if project.spec.department:
                sample = of_projects.get(f"project/{name}", Sample())
                _add(found, f"department/{project.spec.department}", sample)
        for sample in of_nodes.values():
            _add(found, "cluster", sample)
        for sample in of_projects.values():
            work = Sample(
                gpus_pending=sample.gpus_pending,
                quota_gpus=sample.quota_gpus,
                running=sample.running,
                pending=sample.pending,
            )
            _add(found, "cluster", work)
        return found

    def _projects(self, projects: Mapping[str, Project]) -> dict[str, Sample]:
        used: defaultdict[str, float] = defaultdict(float)
        idle: defaultdict[str, float] = defaultdict(float)
        now = self._loop.clock()
        for node in self._live.nodes():
            for device in node.devices:
                quiet = device.idle_since is not None and now - device.idle_since >= IDLE_SECONDS
                whole = max(device.allocated_milli, 1)
                for holder in device.holders:
                    share = holder.gpu_milli / whole
                    used[holder.project] += (device.utilization or 0.0) * share
                    idle[holder.project] += holder.gpu_milli / 1000 if quiet else 0.0
        found = {}
        for name, use in self._live.project_use().items():
            quota = projects[name].spec.quota.gpu_milli if name in projects else None
            found[f"project/{name}"] = Sample(
                gpus_allocated=use.gpu_allocated_milli / 1000,
                gpus_idle=idle[name],
                gpus_used=used[name],
                gpus_pending=use.gpu_waiting_milli / 1000,
                quota_gpus=(quota or 0) / 1000,
                running=use.running,
                pending=use.waiting,
                cpus_allocated=use.cpu_allocated_milli / 1000,
                memory_allocated_gib=use.memory_allocated_bytes / GIB,
            )
        return found


def of_node(node: NodeView, now: float) -> Sample:
    """A node now."""
    idle = sum(
        one.allocated_milli
        for one in node.devices
        if one.idle_since is not None and now - one.idle_since >= IDLE_SECONDS
    )
    return Sample(
        gpus=node.gpu_milli / 1000,
        gpus_ready=node.gpu_milli / 1000 if node.status in ("", "ready") else 0.0,
        gpus_allocated=node.gpu_allocated_milli / 1000,
        gpus_idle=idle / 1000,
        gpus_used=sum(one.utilization or 0.0 for one in node.devices),
        cpus=node.cpu_milli / 1000,
        cpus_allocated=node.cpu_allocated_milli / 1000,
        memory_gib=node.memory_bytes / GIB,
        memory_allocated_gib=node.memory_allocated_bytes / GIB,
    )


def _add(found: dict[str, Sample], subject: str, more: Sample) -> None:
    before = found.get(subject, Sample())
    names = Sample.__struct_fields__
    found[subject] = Sample(**{name: getattr(before, name) + getattr(more, name) for name in names})
