"""The models of a project: versions that runs made, and that endpoints serve."""

from collections.abc import Sequence
from pathlib import Path

from carrel.client.resources.files import download
from carrel.client.transport import Transport, segment
from carrel.errors import BadSetting
from carrel_schema.files import Artifacts, CopyList, StoredCopy


def models_path(project: str, *parts: str | int) -> str:
    """The API path of the models of a project, or of a part of them."""
    return "/".join(["/projects", segment(project), "models", *(segment(str(p)) for p in parts)])


class ModelMethods:
    """Register, list and delete models."""

    _transport: Transport

    async def models(self, project: str) -> Sequence[StoredCopy]:
        """List the versions of all models of a project."""
        return (await self._transport.ask("GET", models_path(project), CopyList)).items

    async def model(self, project: str, name: str) -> Sequence[StoredCopy]:
        """The versions of a model, the newest last."""
        return (await self._transport.ask("GET", models_path(project, name), CopyList)).items

    async def register_model(
        self,
        project: str,
        name: str,
        workload: str,
        path: str = "",
        *,
        checkpoint: str = "",
        description: str = "",
    ) -> StoredCopy:
        """Make the next version of a model of an artifact of a run, or of a checkpoint of it."""
        body = {
            "name": name,
            "workload": workload,
            "path": path,
            "checkpoint": checkpoint,
            "description": description,
        }
        return await self._transport.ask("POST", models_path(project), StoredCopy, body=body)

    async def delete_model(self, project: str, name: str, version: int) -> None:
        """Delete a version of a model; it is not given again."""
        await self._transport.send("DELETE", models_path(project, name, version))

    async def download_model(
        self, project: str, name: str, version: int | None = None, to: str | Path = "."
    ) -> list[Path]:
        """Copy the files of a version of a model (by default the latest) here; returns them."""
        number = version or (await self.model(project, name))[-1].version
        place = models_path(project, name, number, "files")
        files = (await self._transport.ask("GET", place, Artifacts)).items
        try:
            return await download(self._transport, f"{place}/content", files, "", Path(to))
        except OSError as error:
            raise BadSetting(f"{to} cannot be written: {error.strerror}") from error
