"""One workload: its page, its buttons, its deletion, and the form that submits a new one."""

import asyncio
from collections.abc import Sequence
from typing import Any

from typing_extensions import override

from carrel import estimate
from carrel.comparing import parameters_of
from carrel.errors import ApiError
from carrel.models import GpuUsePoint, Workload
from carrel.options import KINDS
from carrel_hub.console import kinds, policy_notes, submit_form
from carrel_hub.console.dependencies import boxes_around
from carrel_hub.console.forms import Form
from carrel_hub.console.handlers.base import Live, SignedInPage
from carrel_hub.console.handlers.log import attempt_of, last_lines
from carrel_hub.console.pictures.dependency_graph import dependency_graph
from carrel_hub.console.pictures.timeline import spans_of, timeline
from carrel_hub.console.policy_notes import PolicyNote
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
            last_lines(self.client, project, name, attempt, word),
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
            live=Live(
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
        """What its GPUs did; ``None`` for work that has had none."""
        began = job.status.first_started_at or job.status.started_at
        if not job.spec.gpus or began is None or not kinds.has_tasks(job):
            return None
        return (await self.client.gpu_use([job.uid])).get(job.uid, ())

    async def _estimate(self, job: Workload, now: float) -> str:
        """When it is likely to start or to end, in words."""
        if job.at_rest or job.spec.kind in estimate.UNTIL_STOPPED:
            return ""
        return estimate.sentence(job, await estimate.read(self.client, job, now), now)

    async def _keep_seconds(self, job: Workload) -> float:
        """What "keep" would add to a workspace now; 0 when it may not be kept."""
        limits = job.status.limits
        if limits is None or not limits.may_extend or not job.holds_resources:
            return 0.0
        return (await self.client.get_project(job.project)).interactive.extend_seconds


class JobVerb(SignedInPage):
    """Suspend, resume, keep and run again: buttons without a question."""

    @override
    async def post(self, project: str, name: str, verb: str) -> None:
        """Do it and show the job."""
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
        """Ask, naming the object and what is lost."""
        job = await self.client.get_workload(project, name)
        live = [one for one in await self.client.children(job) if not one.at_rest]
        self.show("job_delete.html", job=job, children=live)

    @override
    async def post(self, project: str, name: str) -> None:
        """Delete it and show the list."""
        children = self.get_body_argument("children", "") == "yes"
        await self.client.delete_workload(project, name, children=children)
        self.see_other(self.console.urls.page("jobs"))


class SubmitPage(SignedInPage):
    """The form for work of each kind."""

    @override
    async def get(self) -> None:
        """Show it."""
        identity = await self.client.whoami()
        again = self.get_query_argument("again", "")
        if again:
            form = submit_form.form_again(await self._original(again))
        else:
            kind = submit_form.kind_named(self.get_query_argument("kind", ""))
            chosen = self.get_query_argument("project", "")
            project = chosen if chosen in identity.projects else identity.default_project or ""
            form = submit_form.empty_form(project, kind.name)
            policy_notes.fill(form, await self._notes(form))
            await self._fill_from_template(form)
        await self._show(form, identity.projects)

    async def _fill_from_template(self, form: Form) -> None:
        """Fill in the template that the address names; the narrowest of that name counts."""
        name = self.get_query_argument("template", "")
        for one in await self.client.list_templates() if name else ():
            if one.name == name and form.value("kind") in (one.kinds or (form.value("kind"),)):
                submit_form.fill_from(form, one.fields)

    @override
    async def post(self) -> None:
        """Submit and show the job, or show what is wrong at its field."""
        form = Form(self.typed())
        body = submit_form.workload_body(form)
        job: Workload | None = None
        saved = ""
        if not form.refused:
            try:
                if form.value("action") == "template":
                    saved = form.required("name")
                    await self._save_template(saved, body)
                else:
                    job = await self._submit(form, body)
            except ApiError as error:
                if error.status not in {400, 403, 409, 422}:
                    raise
                form.take(error, submit_form.fields_of(body["kind"]))
        if job is not None:
            self.see_other(self.console.urls.job(job.project, job.name))
            return
        if form.refused or not saved:
            saved = ""
            self.set_status(422)
        identity = await self.client.whoami()
        await self._show(form, identity.projects, saved=saved)

    async def _save_template(self, name: str, body: dict[str, Any]) -> None:
        if name:
            own = f"user/{self.user}"
            await self.client.put_template(name, own, submit_form.template_of(body))

    async def _submit(self, form: Form, body: dict[str, Any]) -> Workload:
        """A new one; or an earlier one with its files and secrets, changed as the form says."""
        again = form.value("again")
        if not again:
            return await self.client.create_workload(body)
        original = await self._original(again)
        changes = submit_form.changes_of(body, original)
        return await self.client.rerun(original.project, original.name, changes)

    async def _original(self, again: str) -> Workload:
        project, _, name = again.partition("/")
        return await self.client.get_workload(project, name)

    async def _templates(self, kind: str) -> list[str]:
        """Names of templates that may be filled in; default ones count by themselves."""
        found = await self.client.list_templates()
        return sorted(
            {one.name for one in found if not one.default and kind in (one.kinds or [kind])}
        )

    async def _notes(self, form: Form) -> dict[str, PolicyNote]:
        """What policies say of the form's fields in its project."""
        project, kind = form.value("project"), submit_form.kind_named(form.value("kind")).name
        if not project:
            return {}
        try:
            return policy_notes.notes_of(kind, await self.client.effective_policy(project, kind))
        except ApiError as error:
            if error.status not in {403, 404, 422}:
                raise
            return {}  # the refusal of the form says what is wrong with the project

    async def _show(self, form: Form, projects: Sequence[str], *, saved: str = "") -> None:
        kind = submit_form.kind_named(form.value("kind"))
        form.values.pop("secret", None)  # never shown again, not even to who typed it
        self.show(
            "submit.html",
            section="home",
            form=form,
            projects=projects,
            kind=kind,
            kinds=KINDS,
            groups=submit_form.groups(kind.name),
            notes=await self._notes(form),
            templates=await self._templates(kind.name),
            loaded=self.get_query_argument("template", ""),
            saved=saved,
        )
