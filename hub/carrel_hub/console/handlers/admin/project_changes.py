"""Several projects edited alike: one form, one preview, saved for all of them or for none."""

from typing import Any, Final

from tornado.web import HTTPError
from typing_extensions import override

from carrel.errors import ApiError
from carrel.models import ProjectImpact
from carrel_hub.console.forms import SHOWN_BACK, Form
from carrel_hub.console.handlers.base import SignedInPage
from carrel_hub.console.project_form import WEIGHTS

NONE: Final = "none"
MOST: Final = 200
RESETS: Final[dict[str, dict[str, Any]]] = {
    "reset_quotas": {"quota": {"gpus": 0.0}},
    "reset_weights": {"weight": None},
    "reset_ranks": {"rank": 0},
    "reset_limits": {"limit": {"gpus": None}},
}
"""The field that a ticked box of the form changes."""
FIELDS: Final = {
    "changes.quota.gpus": "quota_gpus",
    "changes.limit.gpus": "limit_gpus",
    "changes.weight": "weight",
    "changes.rank": "rank",
    "changes.max_gpus_per_user": "user_gpus",
    "changes.user_order": "user_order",
}


class MarkedProjectsForm(SignedInPage):
    """The form for marked projects."""

    @override
    async def post(self) -> None:
        """Show the form, preview the input, or save it."""
        form = Form(self.typed())
        names = list(dict.fromkeys(form.value("project").split()))
        if not names or len(names) > MOST:
            raise HTTPError(400, "mark between one and %d projects first", MOST)
        action = form.value("action")
        changes = changes_of(form) if action in ("preview", "save") else {}
        impact: ProjectImpact | None = None
        if action and not changes and not form.refused:
            form.general = "Say at least one change."
        if changes and not form.refused:
            try:
                impact = await self.client.preview_projects(names, changes)
                if action == "save":
                    await self.client.update_projects(names, changes)
            except ApiError as error:
                if error.status not in SHOWN_BACK:
                    raise
                form.take(error, FIELDS)
        if action == "save" and not form.refused:
            self.see_other(f"{self.console.urls.page('projects')}?note=changed")
            return
        if form.refused and "HX-Request" not in self.request.headers:
            self.set_status(422)
        self.show("projects_edit.html", section="projects", form=form, names=names, impact=impact)


def changes_of(form: Form) -> dict[str, Any]:
    """The merge patch: what is empty stays. Look at ``form.refused`` before it is sent."""
    changes: dict[str, Any] = {}
    for box, change in RESETS.items():
        if form.checked(box):
            changes |= change
    for name, group in (("quota_gpus", "quota"), ("limit_gpus", "limit")):
        if form.value(name):
            changes[group] = {"gpus": _bound(form, name)}
    if form.value("user_gpus"):
        changes["max_gpus_per_user"] = _bound(form, "user_gpus")
    if form.value("user_order"):
        changes["user_order"] = form.value("user_order")
    if form.value("weight"):
        named = WEIGHTS.get(form.value("weight").lower())
        changes["weight"] = _bound(form, "weight") if named is None else named
    if form.value("rank"):
        changes["rank"] = form.rank("rank")
    if form.value("over_quota") in ("yes", "no"):
        changes["over_quota"] = form.value("over_quota") == "yes"
    return changes


def _bound(form: Form, name: str) -> float | None:
    return None if form.value(name).lower() == NONE else form.amount(name)
