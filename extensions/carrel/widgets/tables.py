"""The live table of one's work and the live quota lines."""

import time
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import Any, Self

import traitlets
from typing_extensions import override

from carrel import wording
from carrel.client import AsyncClient, Client
from carrel.models import Project, Workload, by_department
from carrel.widgets import bundle, static_html
from carrel.widgets.job_state import describe
from carrel.widgets.live import LiveView, QueryView
from carrel_schema.governance.costs import BudgetOut
from carrel_schema.scopes import scopes_over

CODE = ("words.js", "quota.js", "server.js", "parts.js", "actions.js")


class JobsView(LiveView):
    """The caller's work without workspaces, what is at work first, then the newest."""

    _esm = bundle.module(*CODE, "jobs.js")
    _css = bundle.text("views.css")

    jobs: Any = traitlets.List().tag(sync=True)

    def __init__(self, client: Client, workloads: Sequence[Workload], user: str) -> None:
        self._known = {workload.uid: workload for workload in workloads}
        self._user = user
        super().__init__(client, **self.present())

    @override
    def present(self) -> Mapping[str, Any]:
        ordered = sorted(self._known.values(), key=lambda w: (w.at_rest, -w.created_at, w.name))
        return {"jobs": [describe(workload, workload.status.phase) for workload in ordered]}

    @override
    async def follow(self) -> None:
        async with aclosing(self._client.aio.events()) as events:
            async for event in events:
                spec = event.workload.spec
                if spec.user != self._user or spec.owner or spec.kind == "workspace":
                    continue
                if event.type == "deleted":
                    self._known.pop(event.workload.uid, None)
                else:
                    self._known[event.workload.uid] = event.workload
                self.touch()

    @override
    def fallback(self) -> dict[str, Any]:
        now, workloads = time.time(), list(self._known.values())
        shown = self.present()["jobs"]
        rows = [
            [
                static_html.escape(job["name"]),
                static_html.escape(job["type"]),
                static_html.escape(job["project"]),
                static_html.state(job["phase"], job["icon"], job["word"]),
                static_html.escape(job["gpus"]),
                static_html.sentence(job["reason"]),
            ]
            for job in shown
        ]
        if not rows:
            return {"text/plain": NO_JOBS, "text/html": f"<div>{static_html.escape(NO_JOBS)}</div>"}
        lines = [wording.summary(workload, now) for workload in workloads]
        columns = ("Name", "Type", "Project", "State", "GPUs", "Why")
        return {
            "text/plain": "\n".join(lines),
            "text/html": static_html.table("Your jobs", columns, rows),
        }


NO_JOBS = "No jobs yet: begin a cell with %%train to send it away."


class QuotaView(QueryView):
    """The quota line of each of the caller's projects, and what of budgets over it is left.

    Args:
        client: the scheduler.
        projects: the caller's.
        budgets: that the caller may see.
        user: the caller, whose own budget counts in every project.
    """

    _esm = bundle.module(*CODE, "quotas.js")
    _css = bundle.text("views.css")

    projects: Any = traitlets.List().tag(sync=True)

    def __init__(
        self,
        client: Client,
        projects: Sequence[Project],
        budgets: Sequence[BudgetOut] = (),
        user: str = "",
    ) -> None:
        self._projects, self._budgets, self._user = list(projects), list(budgets), user
        super().__init__(client, **self.present())

    @classmethod
    def of(cls, client: Client) -> Self:
        """The caller's quotas, as of now."""
        return cls(client, client.list_projects(), client.list_budgets(), client.whoami().user)

    @override
    def present(self) -> Mapping[str, Any]:
        return {
            "projects": [
                {**_quota(project), "budgets": self._left(project)} for project in self._ordered()
            ]
        }

    def _left(self, project: Project) -> list[str]:
        """The headroom in budgets over the caller's work in a project, the widest scope first."""
        department = project.department or ""
        over = scopes_over(project=project.name, department=department, user=self._user)
        known = {one.scope: one for one in self._budgets}
        scopes = (str(scope) for scope in over)
        return [wording.budget_words(known[scope]) for scope in scopes if scope in known]

    def _ordered(self) -> list[Project]:
        """Projects by department, those without one last."""
        return [project for _, inside in by_department(self._projects) for project in inside]

    @override
    async def ask(self, client: AsyncClient) -> None:
        self._projects = await client.list_projects()
        self._budgets = list(await client.list_budgets())

    @override
    def fallback(self) -> dict[str, Any]:
        ordered = self._ordered()
        columns: tuple[str, ...] = ("Project", "Quota")
        rows = [
            [static_html.escape(project.name), static_html.escape(wording.quota_words(project))]
            for project in ordered
        ]
        left = {project.name: self._left(project) for project in ordered}
        if any(left.values()):
            columns = (*columns, "Budget")
            words = (static_html.escape("; ".join(left[one.name])) for one in ordered)
            rows = [[*row, budget] for row, budget in zip(rows, words, strict=True)]
        if any(project.department for project in ordered):
            columns = ("Department", *columns)
            owners = (static_html.escape(project.department or "") for project in ordered)
            rows = [[owner, *row] for owner, row in zip(owners, rows, strict=True)]
        lines = [line for group in by_department(ordered) for line in _lines(*group, left)]
        return {
            "text/plain": "\n".join(lines) or "You are in no project yet.",
            "text/html": static_html.table("GPUs of your projects", columns, rows),
        }


def _lines(
    department: str, projects: Sequence[Project], left: Mapping[str, Sequence[str]]
) -> list[str]:
    """The department, if there is one, and below it a line for each project and its budgets."""
    begin = "  " if department else ""
    lines = []
    for project in projects:
        bar, words = wording.quota_bar(project), wording.quota_words(project)
        lines.append(f"{begin}{project.name}  {bar}  {words}")
        lines += [f"{begin}  {one}" for one in left[project.name]]
    return [f"{department}:", *lines] if department else lines


def _quota(project: Project) -> dict[str, Any]:
    """The values for the quota line."""
    use = project.use
    return {
        "name": project.name,
        "department": project.department or "",
        "quota": {"gpus": project.quota.gpus},
        "use": {
            "gpus_allocated": use.gpus_allocated,
            "gpus_borrowed": use.gpus_borrowed,
            "gpus_waiting": use.gpus_waiting,
        },
        "words": wording.quota_words(project),
    }
