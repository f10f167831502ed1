"""Finding work by name for the command palette, and the page Help."""

import json
import time
from importlib.metadata import version
from typing import Final

from typing_extensions import override

from carrel.errors import CarrelError
from carrel_hub.console import kinds
from carrel_hub.console.handlers.base import SignedInPage

MOST_FOUND: Final = 12


class FindWork(SignedInPage):
    """Work whose name, or whose user's, holds a text, as JSON for the palette."""

    @override
    async def get(self) -> None:
        """Answer."""
        search = self.get_query_argument("search", "").strip().lower()[:63]
        page = await self.client.workload_page(search=search, newest_first=True, limit=MOST_FOUND)
        found = [
            {
                "text": job.name,
                "about": f"{job.status.phase} {kinds.noun(job)} in {job.project}",
                "address": self.console.urls.job(job.project, job.name),
            }
            for job in page.items
        ]
        self.set_header("Content-Type", "application/json; charset=utf-8")
        self.finish(json.dumps({"found": found}))


class HelpPage(SignedInPage):
    """How to do things, and what answers how quickly."""

    @override
    async def get(self) -> None:
        """Show it, also when the scheduler does not answer."""
        began = time.perf_counter()
        trouble = ""
        try:
            identity = await self.client.whoami()
            projects, admin = list(identity.projects), identity.admin
            permissions = list(identity.permissions)
        except CarrelError as error:
            trouble, projects, admin, permissions = str(error), [], False, []
        self.show(
            "help.html",
            section="help",
            trouble=trouble,
            milliseconds=(time.perf_counter() - began) * 1000,
            projects=projects,
            admin=admin,
            permissions=permissions,
            version=version("jupyter-carrel"),
            hub_version=version("jupyterhub"),
        )
