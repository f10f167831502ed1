"""The form for a new piece of work, in a notebook.

The page asks the workspace's server; where there is none, it asks the kernel with numbered messages
``{"type": "ask", "number", "given", "dry_run"}`` and gets ``{"type": "answer", "number", ...}``.
"""

import os
from collections.abc import Mapping
from typing import Any

import anywidget
import msgspec
import traitlets
from typing_extensions import override

from carrel.client import Client
from carrel.client.submit import default_project
from carrel.errors import CarrelError
from carrel.notebook.job import Job
from carrel.options.kinds import EVERY
from carrel.widgets import bundle, form_requests, static_html


class FormView(anywidget.AnyWidget):
    """A form for one kind of work: fields, a forecast, and a button to submit.

    Attributes:
        submitted: project, name and kind of what was sent last.
    """

    _esm = bundle.module("words.js", "server.js", "parts.js", "actions.js", "form.js", "submit.js")
    _css = bundle.text("views.css")

    kind = traitlets.Unicode("training").tag(sync=True)
    title = traitlets.Unicode("").tag(sync=True)
    folder = traitlets.Unicode("").tag(sync=True)
    fields: Any = traitlets.List().tag(sync=True)
    preset = traitlets.Dict().tag(sync=True)
    submitted = traitlets.Dict().tag(sync=True)

    def __init__(
        self, client: Client, kind: str = "training", preset: Mapping[str, Any] | None = None
    ) -> None:
        """``preset``: texts by flag. Raises ``CarrelError``."""
        self._client = client
        filled = {"project": default_project(client), **(preset or {})}
        super().__init__(
            kind=kind,
            title=f"Submit {EVERY[kind].noun}" if kind in EVERY else "",
            folder=os.getcwd(),  # noqa: PTH109 - the kernel's folder as a string
            fields=form_requests.fields_of(kind),
            preset=filled,
        )
        self.on_msg(self._on_message)

    @property
    def job(self) -> Job | None:
        """The job that was submitted last."""
        if not self.submitted:
            return None
        project, name = self.submitted["project"], self.submitted["name"]
        return Job(self._client, self._client.get_workload(project, name))

    def _on_message(self, _: Any, content: Any, __: Any) -> None:
        if isinstance(content, dict) and content.get("type") == "ask":
            self._client.loop.start(self._answer(content))

    async def _answer(self, asked: Mapping[str, Any]) -> None:
        try:
            answer = await form_requests.submit(
                self._client.aio,
                self.kind,
                asked.get("given") or {},
                project=self.preset["project"],
                folder=self.folder,
                dry_run=bool(asked.get("dry_run")),
            )
        except CarrelError as error:
            answer = {**form_requests.NOTHING, "message": str(error)}
        self.send({"type": "answer", "number": asked.get("number"), **msgspec.to_builtins(answer)})

    @override
    def _repr_mimebundle_(self, **options: Any) -> Any:
        bundle_ = super()._repr_mimebundle_(**options)
        if bundle_ is None:
            return None
        data, metadata = bundle_
        text = f"A form to submit {EVERY[self.kind].noun}; it needs a running notebook."
        return {**data, "text/plain": text, "text/html": static_html.escape(text)}, metadata
