"""The page Help, and the reference of the REST API.

The reference is the scheduler's own OpenAPI document, shown by Swagger UI, which is served from
here. The page only shows: it takes no token and sends no requests but for the document.
"""

import time
from importlib.metadata import version

from typing_extensions import override

from carrel.errors import CarrelError
from carrel_hub.console.handlers.base import POLICY, SignedInPage


class HelpPage(SignedInPage):
    """Instructions, and measured response times."""

    @override
    async def get(self) -> None:
        """Show the page, even if the scheduler does not answer."""
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


class ReferencePage(SignedInPage):
    """The page."""

    @override
    async def get(self) -> None:
        """Show it; Swagger UI's style sheet has its icons as `data:` images in it."""
        pictures = POLICY.replace("img-src 'self'", "img-src 'self' data:")
        self.set_header("Content-Security-Policy", pictures)
        self.show("reference.html", section="help")


class ReferenceDocument(SignedInPage):
    """The reference document, fetched with the reader's own token."""

    @override
    async def get(self) -> None:
        """Answer with the scheduler's document."""
        content = await self.client.openapi()
        self.set_header("Content-Type", "application/json")
        self.finish(content)
