"""The models of a project: the list of all versions, and one model with what made each of them."""

from typing_extensions import override

from carrel_hub.console.handlers.base import SignedInPage


class ModelsPage(SignedInPage):
    """The latest version of each model."""

    @override
    async def get(self, project: str) -> None:
        """Show them."""
        versions = await self.client.models(project)
        latest = {one.name: one for one in versions}
        models = list(latest.values())
        self.show("models.html", section="projects", project=project, models=models)


class ModelPage(SignedInPage):
    """The page of one model with its versions, the newest first."""

    @override
    async def get(self, project: str, name: str) -> None:
        """Show it."""
        versions = await self.client.model(project, name)
        self.show(
            "model.html",
            section="projects",
            project=project,
            name=name,
            versions=list(reversed(versions)),
        )
