"""Files that work keeps: listed with their expiry, and copied to be kept longer.

A copy is made first and recorded then; what is never recorded is removed by ``retention``.
"""

import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Final

from carrel_scheduler.api import problems
from carrel_scheduler.api.dependencies import ApiDependencies
from carrel_scheduler.api.principals.identity import Principal
from carrel_scheduler.api.problems import Code
from carrel_scheduler.engines.contract import EngineError
from carrel_scheduler.engines.files.contract import Area, StoredFolder, UnknownFile
from carrel_scheduler.ledger.records import CopyKind, CopyRecord
from carrel_scheduler.ledger.store import ObjectExists, ObjectNotFound
from carrel_schema.files import (
    Artifacts,
    CheckpointList,
    KeepRequest,
    ModelRequest,
    StoredCheckpoint,
    StoredCopy,
    StoredFile,
)
from carrel_schema.objects import Workload

_CHECKPOINT: Final = re.compile(r"(?:task-(\d+)/)?(step-(\d+)\.\d+)")


def engine_refusal(error: EngineError) -> problems.Problem:
    """An engine's refusal as a problem."""
    if isinstance(error, UnknownFile):
        return problems.Missing(Code.NO_SUCH_FILE, str(error))
    return problems.Conflicting(Code.ENGINE_REFUSED, str(error))


def checkpoints(files: Sequence[StoredFile], kept: dict[str, str]) -> list[StoredCheckpoint]:
    """The checkpoints to which files belong, oldest first.

    ``kept``: names of copies by the path of what was copied.
    """
    found: dict[str, list[StoredFile]] = {}
    for file in files:
        if place := _CHECKPOINT.match(file.path):
            found.setdefault(place[0], []).append(file)
    listed = []
    for path, parts in found.items():
        place = _CHECKPOINT.fullmatch(path)
        if place is None:
            continue
        listed.append(
            StoredCheckpoint(
                name=place[2],
                step=int(place[3]),
                task=int(place[1] or 0),
                size=sum(part.size for part in parts),
                saved_at=max(part.modified_at for part in parts),
                kept_as=kept.get(path, ""),
            )
        )
    return sorted(listed, key=lambda one: (one.step, one.name, one.task))


class Copies:
    """See the module."""

    def __init__(self, deps: ApiDependencies) -> None:
        self._deps = deps

    async def artifacts(self, workload: Workload) -> Artifacts:
        """The artifacts of a workload."""
        files = await self._list(folder_of(Area.ARTIFACTS, workload))
        return Artifacts(
            items=files,
            size=sum(file.size for file in files),
            expires_at=self._deps.retention.expires_at(Area.ARTIFACTS, workload),
        )

    async def checkpoints(self, workload: Workload) -> CheckpointList:
        """The checkpoints of a workload."""
        files = await self._list(folder_of(Area.CHECKPOINTS, workload))
        kept = {
            record.copy.path: record.copy.name
            for record in await self._deps.ledger.copies("checkpoint", workload.meta.project)
            if record.copy.workload_uid == workload.meta.uid
        }
        return CheckpointList(
            items=checkpoints(files, kept),
            size=sum(file.size for file in files),
            expires_at=self._deps.retention.expires_at(Area.CHECKPOINTS, workload),
        )

    async def files(self, folder: StoredFolder) -> Artifacts:
        """The files of a copy."""
        found = await self._list(folder)
        return Artifacts(items=found, size=sum(file.size for file in found))

    async def read(self, folder: StoredFolder, path: str) -> AsyncGenerator[bytes, None]:
        """The content of a file; refuses at the first step."""
        try:
            async with aclosing(self._deps.files.read(folder, path)) as pieces:
                async for piece in pieces:
                    yield piece
        except EngineError as error:
            raise engine_refusal(error) from error

    async def _list(self, folder: StoredFolder) -> Sequence[StoredFile]:
        try:
            return await self._deps.files.list(folder)
        except EngineError as error:
            raise engine_refusal(error) from error

    async def keep(self, workload: Workload, checkpoint: str, asked: KeepRequest) -> StoredCopy:
        """Keep a checkpoint of a workload under a name."""
        found = await self._checkpoint(workload, checkpoint)
        name = asked.name or _default_name(workload.meta.name, found.step)
        there = await self._deps.ledger.copies("checkpoint", workload.meta.project, name)
        if there:
            raise _taken(name)
        path = f"task-{found.task}/{found.name}" if found.task else found.name
        source = folder_of(Area.CHECKPOINTS, workload)
        copy = _of_run(workload, name, asked.description, workload.spec.user)
        return await self._make("checkpoint", source, path, copy)

    async def register(self, run: Workload, asked: ModelRequest, person: Principal) -> StoredCopy:
        """Make a version of a model of what a run kept, or of one of its checkpoints."""
        area, path = Area.ARTIFACTS, asked.path.strip("/")
        if asked.checkpoint:
            if asked.path:
                raise problems.invalid_field(
                    "path", Code.INVALID, asked.path, "left out where a checkpoint is named"
                )
            if not person.owns(run.spec.user, run.spec.kind):
                raise problems.PermissionDenied(
                    Code.NOT_THE_OWNER, f"The checkpoints of this run are {run.spec.user}'s"
                )
            found = await self._checkpoint(run, asked.checkpoint)
            area, path = Area.CHECKPOINTS, found.name
        copy = _of_run(run, asked.name, asked.description, person.name)
        return await self._make("model", folder_of(area, run), path, copy)

    async def _checkpoint(self, workload: Workload, asked: str) -> StoredCheckpoint:
        """The latest checkpoint with that name or step."""
        listed = (await self.checkpoints(workload)).items
        found = [one for one in listed if asked in (one.name, str(one.step))]
        if not found:
            known = f", such as {listed[-1].name}" if listed else "; it has none"
            raise problems.Missing(
                Code.NO_SUCH_FILE, f"There is no checkpoint `{asked}` of this work{known}"
            )
        return found[-1]

    async def _make(
        self, kind: CopyKind, source: StoredFolder, path: str, copy: StoredCopy
    ) -> StoredCopy:
        deps, uid = self._deps, self._deps.ids()
        target = StoredFolder(Area.COPIES, copy.project, uid)
        await self._check_room(source, path, copy.project)
        try:
            size = await deps.files.copy(source, path, target)
        except EngineError as error:
            raise engine_refusal(error) from error
        made = StoredCopy(
            project=copy.project,
            name=copy.name,
            user=copy.user,
            description=copy.description,
            workload=copy.workload,
            workload_uid=copy.workload_uid,
            path=path,
            size=size,
            created_at=deps.clock(),
            metrics=copy.metrics,
            parameters=copy.parameters,
        )
        try:
            return (await deps.ledger.add_copy(kind, uid, made)).copy
        except ObjectExists as error:
            await deps.files.remove(target)
            raise _taken(copy.name) from error

    async def _check_room(self, source: StoredFolder, path: str, project: str) -> None:
        """Refuse a copy for which the project has no room."""
        most = self._deps.retention.project_bytes
        if not most:
            return
        listed = await self._list(source)
        wanted = sum(
            file.size
            for file in listed
            if not path or file.path == path or file.path.startswith(f"{path}/")
        )
        used = sum(one.copy.size for one in await self._deps.ledger.copies(project=project))
        if used + wanted > most:
            raise problems.Conflicting(
                Code.STORAGE_FULL,
                f"The models and kept checkpoints of `{project}` take {used:,} bytes; with these "
                f"{wanted:,} they would be more than its {most:,}. Delete some that nobody needs",
            )

    async def listed(
        self, kind: CopyKind, project: str, name: str | None = None
    ) -> list[StoredCopy]:
        """Copies of a project."""
        return [record.copy for record in await self._deps.ledger.copies(kind, project, name)]

    async def find(self, kind: CopyKind, project: str, name: str, version: str) -> CopyRecord:
        """Find a copy. Raises ``Missing``."""
        for record in await self._deps.ledger.copies(kind, project, name):
            if str(record.copy.version) == version:
                return record
        what = f"{name}@{version}" if kind == "model" else name
        raise problems.Missing(Code.NOT_FOUND, f"There is no {kind} `{what}` in `{project}`")

    async def delete(
        self, kind: CopyKind, project: str, name: str, version: str, person: Principal
    ) -> None:
        """Delete a copy with its files; for its author, and for managers of the models."""
        record = await self.find(kind, project, name, version)
        manages = person.may_in(project, "models:manage")
        if not manages and not person.owns(record.copy.user, kind):
            raise problems.PermissionDenied(
                Code.NOT_THE_OWNER,
                f"It is {record.copy.user}'s; they can delete it, and who has the permission "
                f"`models:manage` in project/{project}",
            )
        try:
            await self._deps.ledger.remove_copy(record.uid)
        except ObjectNotFound as error:
            raise problems.Missing(Code.NOT_FOUND, f"`{name}` was deleted meanwhile") from error
        await self._deps.files.remove(StoredFolder(Area.COPIES, project, record.uid))


def folder_of(area: Area, workload: Workload) -> StoredFolder:
    """The folder of a workload's files."""
    return StoredFolder(area, workload.meta.project, workload.meta.uid)


def _of_run(run: Workload, name: str, description: str, user: str) -> StoredCopy:
    return StoredCopy(
        project=run.meta.project,
        name=name,
        user=user,
        description=description,
        workload=run.meta.name,
        workload_uid=run.meta.uid,
        metrics=dict(run.status.metrics),
        parameters=dict(run.status.parameters),
    )


def _default_name(workload: str, step: int) -> str:
    end = f"-{step}"
    return workload[: 63 - len(end)].rstrip("-") + end


def _taken(name: str) -> problems.Conflicting:
    return problems.Conflicting(
        Code.ALREADY_EXISTS,
        f"A checkpoint was kept as `{name}` before; a name is given once: choose another",
    )
