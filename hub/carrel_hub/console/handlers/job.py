"""The page of one workload, its buttons and its deletion."""

import asyncio
from collections.abc import Sequence

from typing_extensions import override

from carrel import estimate, remedies
from carrel.comparing import parameters_of
from carrel.models import GpuUsePoint, Workload
from carrel_hub.console import kinds
from carrel_hub.console.dependencies import boxes_around
from carrel_hub.console.handlers.base import LiveRegions, SignedInPage
from carrel_hub.console.handlers.log import attempt_of, last_lines
from carrel_hub.console.pictures.dependency_graph import dependency_graph
from carrel_hub.console.pictures.timeline import spans_of, timeline
from carrel_schema.answers import Trials

REGIONS = (
    *("state", "facts", "gpu-use", "trials", "past", "curves", "last-values", "log", "tasks"),
    "related",
)


class JobPage(SignedInPage):
    """State and reason, timeline, curves, log, tasks, specification."""

    @override
    async def get(self, project: str, name: str) -> None:
        """Show it."""
        attempt = attempt_of(self.get_query_argument("attempt", ""))
        word = self.get_query_argument("find", "").strip()[:200]
        job = await self.client.get_workload(project, name)
        children, dependents, history, log, identity = await asyncio.gather(
            self.client.children(job),
            self.client.dependents(job),
            self.client.history(project, name),
            last_lines(self.client, job, attempt, word),
            self.client.whoami(),
        )
        trials: Trials | None = None
        if job.spec.kind == "experiment":
            trials = await self.client.trials(project, name)
        nodes = await self.client.nodes() if any(task.devices for task in job.status.tasks) else []
        boxes = []
        if job.spec.after or dependents:
            boxes = await boxes_around(self.client, job, self.console.urls)
        now = self.console.clock()
        spans = spans_of(history.transitions)
        self.show(
            "job.html",
            section="jobs",
            live=LiveRegions(
                REGIONS,
                every=2 if job.holds_resources else 10,
                events=f"?project={project}&name={name}",
            ),
            job=job,
            spans=spans,
            picture=timeline(spans, now),
            log=log,
            attempt=attempt,
            word=word,
            trials=trials,
            children=children,
            dependents=dependents,
            graph=dependency_graph(boxes, job.uid),
            nodes=nodes,
            measured=await self._measured(job),
            estimate=await self._estimate(job, now),
            remedies=await remedies.read(self.client, job),
            has_tasks=kinds.has_tasks(job),
            kinds_reports=kinds.reports(job),
            parameters=parameters_of(job),
            facts=kinds.facts(job, now),
            addresses=kinds.addresses(job, self.console.urls),
            keep_seconds=await self._keep_seconds(job),
            alerts=await self.alerts_about(f"workload/{job.project}/{job.name}"),
            may_steer=job.spec.user == self.user or "workloads:manage" in identity.permissions,
        )

    async def _measured(self, job: Workload) -> Sequence[GpuUsePoint] | None:
        """The GPU use of the workload; ``None`` for work that has had no GPUs."""
        began = job.status.first_started_at or job.status.started_at
        if not job.spec.gpus or began is None or not kinds.has_tasks(job):
            return None
        return (await self.client.gpu_use([job.uid])).get(job.uid, ())

    async def _estimate(self, job: Workload, now: float) -> str:
        """The estimate of when the workload starts or ends, in words."""
        if job.at_rest or job.spec.kind in estimate.UNTIL_STOPPED:
            return ""
        return estimate.sentence(job, await estimate.read(self.client, job, now), now)

    async def _keep_seconds(self, job: Workload) -> float:
        """The seconds that "keep" would add to a workspace now; 0 when it may not be kept."""
        limits = job.status.limits
        if limits is None or not limits.may_extend or not job.holds_resources:
            return 0.0
        return (await self.client.get_project(job.project)).interactive.extend_seconds


class JobVerb(SignedInPage):
    """Suspend, resume, keep and run again: buttons without a question."""

    @override
    async def post(self, project: str, name: str, verb: str) -> None:
        """Apply the action and show the job."""
        if verb == "suspend":
            await self.client.suspend(project, name)
        elif verb == "resume":
            await self.client.resume(project, name)
        elif verb == "rerun":
            name = (await self.client.rerun(project, name)).name
        else:
            await self.client.extend(project, name)
        self.see_other(self.console.urls.job(project, name))


class JobDeletion(SignedInPage):
    """The question before a deletion, and the deletion."""

    @override
    async def get(self, project: str, name: str) -> None:
        """Ask for confirmation, with the name and what would be lost."""
        job = await self.client.get_workload(project, name)
        live = [one for one in await self.client.children(job) if not one.at_rest]
        self.show("job_delete.html", job=job, children=live)

    @override
    async def post(self, project: str, name: str) -> None:
        """Delete the workload and show the list."""
        children = self.get_body_argument("children", "") == "yes"
        await self.client.delete_workload(project, name, children=children)
        self.see_other(self.console.urls.page("jobs"))
