"""Operations on files of work: artifacts, checkpoints, and the files of running tasks.

What a task wrote is never shown as a page: it is an attachment, and sandboxed should a browser
open it all the same.
"""

import posixpath
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

from carrel_scheduler.api.models.queries import FilePathQuery, FileQuery, FileWriteQuery
from carrel_scheduler.api.operation import BYTES, Call, Operation, Response, StreamedResponse
from carrel_scheduler.api.operations.paths import PROJECT, WORKLOAD
from carrel_scheduler.api.principals.access import AdmittedCallers
from carrel_scheduler.api.services import task_files
from carrel_scheduler.api.services.copies import folder_of
from carrel_scheduler.api.services.task_files import running_task
from carrel_scheduler.engines.files.contract import Area
from carrel_schema.files import (
    PIECE_BYTES,
    Artifacts,
    CheckpointList,
    CopyList,
    KeepRequest,
    StoredCopy,
)

TAR: Final = "application/x-tar"


def attachment(path: str) -> Mapping[str, str]:
    """The headers of an answer that no browser shows as a page."""
    name = quote(posixpath.basename(path), safe="")
    return {
        "Content-Disposition": f"attachment; filename*=UTF-8''{name}",
        "Content-Security-Policy": "sandbox; default-src 'none'",
    }


@Operation(
    "GET",
    f"{WORKLOAD}/artifacts",
    access=AdmittedCallers.MEMBER,
    permission="workloads:read",
    answers={200: Artifacts},
)
async def list_artifacts(call: Call) -> Response:
    """List the files that are kept after a workload has ended."""
    return Response(await call.services.copies.artifacts(call.workload))


@Operation(
    "GET",
    f"{WORKLOAD}/artifacts/content",
    access=AdmittedCallers.MEMBER,
    permission="workloads:read",
    query=FilePathQuery,
    answers={200: bytes},
    problems=(409,),
    media=BYTES,
)
async def read_artifact(call: Call) -> StreamedResponse:
    """Read the content of an artifact."""
    query: FilePathQuery = call.query
    pieces = call.services.copies.read(folder_of(Area.ARTIFACTS, call.workload), query.path)
    return StreamedResponse(pieces, media=BYTES, ends=True, headers=attachment(query.path))


@Operation(
    "GET",
    f"{WORKLOAD}/checkpoints",
    access=AdmittedCallers.MEMBER,
    permission="workloads:read",
    answers={200: CheckpointList},
)
async def list_checkpoints(call: Call) -> Response:
    """List the checkpoints of a workload, oldest first."""
    return Response(await call.services.copies.checkpoints(call.workload))


@Operation(
    "POST",
    f"{WORKLOAD}/checkpoints/{{checkpoint}}/keep",
    access=AdmittedCallers.OWNER,
    permission="workloads:update",
    others="workloads:enter",
    body=KeepRequest,
    answers={201: StoredCopy},
    problems=(409,),
)
async def keep_checkpoint(call: Call) -> Response:
    """Copy a checkpoint under a name; the copy stays when the workload is removed."""
    body: KeepRequest = call.body
    kept = await call.services.copies.keep(call.workload, call.path["checkpoint"], body)
    return Response(kept, 201)


@Operation(
    "GET",
    f"{PROJECT}/checkpoints",
    access=AdmittedCallers.MEMBER,
    permission="models:read",
    answers={200: CopyList},
)
async def list_kept_checkpoints(call: Call) -> Response:
    """List the copies of checkpoints that are kept in a project."""
    items = await call.services.copies.listed("checkpoint", call.path["project"])
    return Response(CopyList(items=items))


@Operation(
    "DELETE",
    f"{PROJECT}/checkpoints/{{checkpoint}}",
    access=AdmittedCallers.MEMBER,
    permission="models:create",
    answers={204: None},
    problems=(409,),
)
async def delete_kept_checkpoint(call: Call) -> Response:
    """Delete a kept checkpoint; for its owner and administrators."""
    path, person = call.path, call.visitor.person
    await call.services.copies.delete(
        "checkpoint", path["project"], path["checkpoint"], "1", person
    )
    return Response(status=204)


@Operation(
    "GET",
    f"{WORKLOAD}/files",
    access=AdmittedCallers.OWNER,
    permission="workloads:update",
    others="workloads:enter",
    query=FileQuery,
    answers={200: bytes},
    problems=(409,),
    media=TAR,
    audited=True,
)
async def read_task_files(call: Call) -> StreamedResponse:
    """Read a file or folder of a running task as a tar archive, by its path in the task."""
    query: FileQuery = call.query
    task = running_task(call.workload, query.index)
    pieces = task_files.read(call.services.deps.files, task, query.path)
    return StreamedResponse(pieces, media=TAR, ends=True, headers=attachment(f"{query.path}.tar"))


@Operation(
    "PUT",
    f"{WORKLOAD}/files",
    access=AdmittedCallers.OWNER,
    permission="workloads:update",
    others="workloads:enter",
    query=FileWriteQuery,
    raw_bytes=PIECE_BYTES,
    answers={204: None},
    problems=(409,),
)
async def write_task_file(call: Call) -> Response:
    """Write a part of a file in a running task; the file appears when its last part is written."""
    query: FileWriteQuery = call.query
    task = running_task(call.workload, query.index)
    await task_files.write(
        call.services.deps.files,
        task,
        query.path,
        call.body,
        offset=query.offset,
        more=query.more,
    )
    return Response(status=204)


OPERATIONS: Final = (
    list_artifacts,
    read_artifact,
    list_checkpoints,
    keep_checkpoint,
    list_kept_checkpoints,
    delete_kept_checkpoint,
    read_task_files,
    write_task_file,
)
