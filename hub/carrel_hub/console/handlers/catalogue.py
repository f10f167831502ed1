"""The catalogue of models: what can be served here, with a button that serves it."""

from typing_extensions import override

from carrel.errors import ApiError
from carrel_hub.console.forms import SHOWN_BACK
from carrel_hub.console.handlers.base import SignedInPage


class CataloguePage(SignedInPage):
    """The page of the catalogue; entries that no node can hold say why and have no button."""

    @override
    async def get(self) -> None:
        """Show them."""
        await self._show("")

    @override
    async def post(self) -> None:
        """Serve one and show its page, or say why it is refused."""
        typed = self.typed()
        body = {
            "kind": "inference",
            "template": typed.get("entry", ""),
            "project": typed.get("project", ""),
            "name_prefix": typed.get("entry", ""),
        }
        try:
            made = await self.client.create_workload(body)
        except ApiError as error:
            if error.status not in SHOWN_BACK:
                raise
            self.set_status(error.status)
            await self._show(str(error))
            return
        self.see_other(self.console.urls.job(made.project, made.name))

    async def _show(self, refusal: str) -> None:
        identity = await self.client.whoami()
        chosen = self.get_argument("project", "")
        self.show(
            "catalogue.html",
            section="catalogue",
            permissions=identity.permissions,
            entries=await self.client.catalogue(),
            projects=identity.projects,
            project=chosen if chosen in identity.projects else identity.default_project or "",
            refusal=refusal,
        )
