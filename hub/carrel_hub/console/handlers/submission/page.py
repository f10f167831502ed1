"""The form that submits work: what it offers, what would happen now, and the submission.

While it is filled in, the page asks again what would happen: the same form with the action
``check``, which writes nothing. The form says for which project its fields were filled in
(``filled-for``): once another one is chosen they are filled in again.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from typing_extensions import override

from carrel.errors import ApiError
from carrel.models import Node, Project, Reason, Workload
from carrel.options import KINDS
from carrel_hub.console import policy_notes
from carrel_hub.console.forms import Form
from carrel_hub.console.handlers.base import SignedInPage
from carrel_hub.console.policy_notes import PolicyNote
from carrel_hub.console.submission import code
from carrel_hub.console.submission import form as submit_form
from carrel_hub.console.submission import offers as submit_offers
from carrel_hub.console.submission.offers import FormChoices
from carrel_schema.governance.assets import AssetOut
from carrel_schema.governance.templates import TemplateOut

_SAID_AT_FORM = {400, 403, 404, 409, 422}


@dataclass(frozen=True, slots=True)
class _FormData:
    """The data for the form."""

    projects: Sequence[Project]
    templates: Sequence[TemplateOut]
    assets: Sequence[AssetOut]
    nodes: Sequence[Node]

    def project(self, name: str) -> Project | None:
        """The project of this name, if the reader is a member."""
        return next((one for one in self.projects if one.name == name), None)


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
            usual = identity.default_project or next(iter(identity.projects), "")
            form = submit_form.empty_form(
                chosen if chosen in identity.projects else usual, kind.name
            )
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
        """Submit and show the job, say what would happen, or show what is wrong at its field."""
        form = Form(self.typed())
        await self._refill(form)
        if form.value("action") == "check":
            forecast = await self._forecast(form)
            await self._show(form, (await self.client.whoami()).projects, forecast=forecast)
            return
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
                if error.status not in _SAID_AT_FORM - {404}:
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

    async def _refill(self, form: Form) -> None:
        """Fill in the defaults of the project, if the fields have those of another one."""
        before = form.value("filled-for")
        if form.value("action") != "check" or not before or before == form.value("project"):
            return
        theirs = Form(form.values | {"project": before})
        policy_notes.refill(form, *await asyncio.gather(self._notes(theirs), self._notes(form)))

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

    async def _forecast(self, form: Form) -> Reason | None:
        """The forecast for the request; ``None`` while it is not complete enough."""
        asked = Form(dict(form.values))
        if not asked.value("command"):  # what it runs changes nothing about its place
            asked.values["command"] = "true"
        body = submit_form.workload_body(asked)
        if asked.refused:
            return None
        try:
            again = form.value("again")
            if not again:
                return (await self.client.create_workload(body, dry_run=True)).forecast
            original = await self._original(again)
            changes = submit_form.changes_of(body, original)
            told = await self.client.rerun(original.project, original.name, changes, dry_run=True)
        except ApiError as error:
            if error.status not in _SAID_AT_FORM:
                raise
            sentence = f"It would be refused: {error}"
            return Reason(token="Refused", sentence=sentence)  # noqa: S106 - of a reason
        return told.forecast

    async def _known(self, projects: Sequence[str]) -> _FormData:
        found, templates, assets, nodes = await asyncio.gather(
            self.client.list_projects(),
            self.client.list_templates(),
            self.client.list_assets(),
            self.client.nodes(),
        )
        own = [one for one in found if one.name in projects]
        return _FormData(own, templates, assets, nodes)

    def _offers(
        self, known: _FormData, form: Form, kind: str, notes: Mapping[str, PolicyNote]
    ) -> FormChoices:
        project = known.project(form.value("project"))
        counting = submit_offers.default_templates(
            known.templates,
            kind,
            form.value("project"),
            (project.department or "") if project is not None else "",
            self.user,
        )
        choices = submit_offers.choices_of(
            known.assets,
            known.nodes,
            self.user,
            [one.name for one in known.projects],
            policy_notes.locked_scopes(notes),
        )
        return FormChoices(
            choices=choices,
            known={"gpu-type": submit_offers.models_of(known.nodes)},
            usual=submit_offers.usual_of(counting, submit_form.rows_of(kind), submit_form.spelt),
        )

    async def _notes(self, form: Form) -> dict[str, PolicyNote]:
        """The policies' notes about the form's fields in its project."""
        project, kind = form.value("project"), submit_form.kind_named(form.value("kind")).name
        if not project:
            return {}
        try:
            return policy_notes.notes_of(kind, await self.client.effective_policy(project, kind))
        except ApiError as error:
            if error.status not in {403, 404, 422}:
                raise
            return {}  # the refusal of the form says what is wrong with the project

    async def _show(self, form: Form, projects: Sequence[str], **more: Any) -> None:
        kind = submit_form.kind_named(form.value("kind"))
        known, notes = await asyncio.gather(self._known(projects), self._notes(form))
        policy_notes.fill_locked(form, notes)
        form.values.pop("secret", None)  # never shown again, not even to who typed it
        fitting = [one for one in known.templates if kind.name in (one.kinds or [kind.name])]
        self.show(
            "submit.html",
            section="home",
            form=form,
            projects=projects,
            project=known.project(form.value("project")),
            kind=kind,
            kinds=KINDS,
            groups=submit_form.groups(
                kind.name, self._offers(known, form, kind.name, notes), form, notes
            ),
            notes=notes,
            templates=sorted({one.name for one in fitting if not one.default}),
            about={one.name: one.description for one in fitting if one.description},
            loaded=self.get_query_argument("template", ""),
            code_rules=code.RULES if code.is_taken_along(kind.name) else None,
            code_about=code.about(form),
            **({"saved": "", "forecast": None} | more),
        )
