"""The reference of the REST API: the scheduler's own OpenAPI document, shown by Swagger UI.

Everything comes from here, nothing from elsewhere. The page only shows: it takes no token and sends
no requests of its own but for the document.
"""

from typing_extensions import override

from carrel_hub.console.handlers.base import POLICY, SignedInPage


class ReferencePage(SignedInPage):
    """The page."""

    @override
    async def get(self) -> None:
        """Show it; Swagger UI's style sheet has its icons as `data:` images in it."""
        pictures = POLICY.replace("img-src 'self'", "img-src 'self' data:")
        self.set_header("Content-Security-Policy", pictures)
        self.show("reference.html", section="help")


class ReferenceDocument(SignedInPage):
    """The document, asked for with the reader's own token."""

    @override
    async def get(self) -> None:
        """Answer with it as the scheduler does."""
        content = await self.client.openapi()
        self.set_header("Content-Type", "application/json")
        self.finish(content)
