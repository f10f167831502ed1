"""One workload: its page, its buttons, its deletion, and the form that submits a new one."""

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import aclosing

from typing_extensions import override

from carrel.client import AsyncClient
from carrel.errors import ApiError
from carrel.models import Workload
from carrel.options import KINDS
from carrel_hub.console import submit_form
from carrel_hub.console.forms import Form
from carrel_hub.console.handlers.base import Live, SignedInPage
from carrel_hub.console.pictures.timeline import spans_of, timeline

LOG_LINES = 200
_LOG_CHARACTERS = 100_000


class JobPage(SignedInPage):
    """State and reason, timeline, curves, log, tasks, specification."""

    @override
    async def get(self, project: str, name: str) -> None:
        """Show it."""
        job, history, log, identity = await asyncio.gather(
            self.client.get_workload(project, name),
            self.client.history(project, name),
            last_lines(self.client, project, name),
            self.client.whoami(),
        )
        now = self.console.clock()
        spans = spans_of(history.transitions)
        self.show(
            "job.html",
            section="home" if job.spec.user == self.user else "",
            live=Live(
                ("state", "past", "curves", "last-values", "log", "tasks"),
                every=2 if job.holds_resources else 10,
                events=f"?project={project}&name={name}",
            ),
            job=job,
            spans=spans,
            picture=timeline(spans, now),
            log=log,
            keep_seconds=await self._keep_seconds(job),
            may_steer=identity.admin or job.spec.user == self.user,
        )

    async def _keep_seconds(self, job: Workload) -> float:
        """What "keep" would add to a workspace now; 0 when it may not be kept."""
        limits = job.status.limits
        if limits is None or not limits.may_extend or not job.holds_resources:
            return 0.0
        return (await self.client.get_project(job.project)).interactive.extend_seconds


class JobVerb(SignedInPage):
    """Suspend, resume and keep: buttons without a question."""

    @override
    async def post(self, project: str, name: str, verb: str) -> None:
        """Do it and show the job."""
        if verb == "suspend":
            await self.client.suspend(project, name)
        elif verb == "resume":
            await self.client.resume(project, name)
        else:
            await self.client.extend(project, name)
        self.see_other(self.console.urls.job(project, name))


class JobDeletion(SignedInPage):
    """The question before a deletion, and the deletion."""

    @override
    async def get(self, project: str, name: str) -> None:
        """Ask, naming the object and what is lost."""
        job = await self.client.get_workload(project, name)
        self.show("job_delete.html", job=job)

    @override
    async def post(self, project: str, name: str) -> None:
        """Delete it and show the list."""
        await self.client.delete_workload(project, name)
        self.see_other(self.console.urls.page("jobs"))


class SubmitPage(SignedInPage):
    """The form for work of each kind."""

    @override
    async def get(self) -> None:
        """Show it."""
        identity = await self.client.whoami()
        kind = submit_form.kind_named(self.get_query_argument("kind", ""))
        form = submit_form.empty_form(identity.default_project or "", kind.name)
        self._show(form, identity.projects)

    @override
    async def post(self) -> None:
        """Submit and show the job, or show what is wrong at its field."""
        form = Form(self.typed())
        body = submit_form.workload_body(form)
        job: Workload | None = None
        if not form.refused:
            try:
                job = await self.client.create_workload(body)
            except ApiError as error:
                if error.status not in {400, 403, 409, 422}:
                    raise
                form.take(error, submit_form.fields_of(body["kind"]))
        if job is not None:
            self.see_other(self.console.urls.job(job.project, job.name))
            return
        self.set_status(422)
        identity = await self.client.whoami()
        self._show(form, identity.projects)

    def _show(self, form: Form, projects: Sequence[str]) -> None:
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
        )


async def last_lines(client: AsyncClient, project: str, name: str) -> str:
    """The end of the output; empty where there is none yet."""
    pieces: deque[str] = deque()
    held = 0
    try:
        async with aclosing(client.logs(project, name, tail=LOG_LINES)) as output:
            async for piece in output:
                pieces.append(piece)
                held += len(piece)
                while held - len(pieces[0]) > _LOG_CHARACTERS:
                    held -= len(pieces.popleft())
    except ApiError as error:
        if error.status not in {404, 409}:
            raise
    return "".join(pieces)
