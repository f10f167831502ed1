"""Operations on the code of jobs: members of a project upload it, tasks fetch it."""

from collections.abc import AsyncGenerator, Sequence
from typing import Final

import msgspec

from carrel_scheduler.api import problems
from carrel_scheduler.api.code_store import QuotaUsed
from carrel_scheduler.api.operation import BYTES, Call, Operation, Response, StreamedResponse
from carrel_scheduler.api.operations.paths import PROJECT, WORKLOAD
from carrel_scheduler.api.principals.access import AdmittedCallers
from carrel_scheduler.api.problems import Code
from carrel_schema import code
from carrel_schema.answers import UploadedCode
from carrel_schema.code import CHUNK_BYTES, MOST_LIST_BYTES, UnusableFolder

AT_ONCE: Final = 8
"""Chunks that are read together, of at most 1 MiB each."""


@Operation(
    "POST",
    f"{PROJECT}/code",
    access=AdmittedCallers.MEMBER,
    permission="code:create",
    raw_bytes=MOST_LIST_BYTES,
    answers={200: UploadedCode},
    problems=(409,),
    for_jobs=True,
)
async def upload_code(call: Call) -> Response:
    """Upload the list of a folder's files, and answer which chunks of them have to be sent."""
    project, store = await _project(call), call.services.deps.code
    try:
        folder = code.decode(call.body)
    except UnusableFolder as error:
        raise problems.invalid_field(
            error.field, Code.INVALID, error.value, error.expected
        ) from error
    missing = await store.missing(project, folder)
    digest = code.digest_of(folder.encode())
    if not missing:
        try:
            await store.put_folder(project, folder)
        except QuotaUsed as error:
            raise _no_room(project) from error
    return Response(UploadedCode(digest=digest, missing=missing))


@Operation(
    "PUT",
    f"{PROJECT}/code/chunks/{{digest}}",
    access=AdmittedCallers.MEMBER,
    permission="code:create",
    raw_bytes=CHUNK_BYTES,
    answers={204: None},
    problems=(409,),
    for_jobs=True,
)
async def upload_chunk(call: Call) -> Response:
    """Upload a chunk of a file; its path is the SHA-256 of the body."""
    project, asked = await _project(call), call.path["digest"]
    found = code.digest_of(call.body)
    if asked != found:
        raise problems.invalid_field("digest", Code.INVALID, asked, f"{found}, as the body's is")
    try:
        await call.services.deps.code.put_chunk(project, call.body)
    except QuotaUsed as error:
        raise _no_room(project) from error
    return Response(status=204)


@Operation(
    "GET",
    f"{WORKLOAD}/code",
    access=AdmittedCallers.TASK,
    permission="workloads:update",
    others="workloads:enter",
    answers={200: bytes},
    media=BYTES,
)
async def read_code(call: Call) -> Response:
    """Read the list of files of the job's working folder."""
    return Response(await _folder(call), media=BYTES)


@Operation(
    "GET",
    f"{WORKLOAD}/code/content",
    access=AdmittedCallers.TASK,
    permission="workloads:update",
    others="workloads:enter",
    answers={200: bytes},
    media=BYTES,
)
async def read_code_content(call: Call) -> StreamedResponse:
    """Read all files of the job's working folder, concatenated in the order of the list."""
    folder = msgspec.json.decode(await _folder(call), type=code.CodeFolder)
    chunks = [chunk for file in folder.files for chunk in file.chunks]
    return StreamedResponse(_content(call, chunks), media=BYTES, ends=True)


async def _content(call: Call, chunks: Sequence[str]) -> AsyncGenerator[bytes, None]:
    project, store = call.workload.meta.project, call.services.deps.code
    for at in range(0, len(chunks), AT_ONCE):
        content = await store.get_chunks(project, chunks[at : at + AT_ONCE])
        if content is None:
            raise problems.Missing(Code.NOT_FOUND, "A part of the job's working folder is gone")
        yield content


async def _project(call: Call) -> str:
    """Find the project that the path names. Raises ``Missing`` if there is none."""
    project = call.path["project"]
    await call.services.projects.get(project)
    return project


async def _folder(call: Call) -> bytes:
    source, content = call.workload.spec.code, None
    if source is not None and source.digest:
        project = call.workload.meta.project
        content = await call.services.deps.code.get_folder(project, source.digest)
    if content is None:
        raise problems.Missing(Code.NOT_FOUND, "The job has no working folder that was uploaded")
    return content


def _no_room(project: str) -> problems.Conflicting:
    return problems.Conflicting(
        Code.STORAGE_FULL,
        f"The room for code of `{project}` is used up; delete jobs that are no longer needed",
    )


OPERATIONS: Final = (upload_code, upload_chunk, read_code, read_code_content)
