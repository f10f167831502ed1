"""Operations on the models of a project: versions that runs made, and that endpoints serve."""

from typing import Final

from carrel_scheduler.api import problems
from carrel_scheduler.api.models.queries import FilePathQuery
from carrel_scheduler.api.operation import BYTES, Call, Operation, Response, StreamedResponse
from carrel_scheduler.api.operations.files import attachment
from carrel_scheduler.api.operations.paths import PROJECT
from carrel_scheduler.api.principals.access import AdmittedCallers
from carrel_scheduler.api.problems import Code
from carrel_scheduler.engines.files.contract import Area, StoredFolder
from carrel_scheduler.ledger.store import ObjectNotFound
from carrel_schema.files import Artifacts, CopyList, ModelRequest, StoredCopy
from carrel_schema.objects import Workload

MODELS: Final = f"{PROJECT}/models"
VERSION: Final = f"{MODELS}/{{model}}/{{version}}"


@Operation(
    "POST",
    MODELS,
    access=AdmittedCallers.MEMBER,
    permission="models:create",
    body=ModelRequest,
    answers={201: StoredCopy},
    problems=(409,),
)
async def register_model(call: Call) -> Response:
    """Register the artifact or checkpoint of a run as the next version of a model."""
    body: ModelRequest = call.body
    project = call.path["project"]
    try:
        run = await call.services.deps.ledger.get(Workload, body.workload, project)
    except ObjectNotFound as error:
        raise problems.invalid_field(
            "workload", Code.UNKNOWN_JOB, body.workload, f"work of `{project}`"
        ) from error
    made = await call.services.copies.register(run, body, call.visitor.person)
    return Response(made, 201)


@Operation(
    "GET", MODELS, access=AdmittedCallers.MEMBER, permission="models:read", answers={200: CopyList}
)
async def list_models(call: Call) -> Response:
    """List all versions of all models of a project."""
    return Response(
        CopyList(items=await call.services.copies.listed("model", call.path["project"]))
    )


@Operation(
    "GET",
    f"{MODELS}/{{model}}",
    access=AdmittedCallers.MEMBER,
    permission="models:read",
    answers={200: CopyList},
)
async def read_model(call: Call) -> Response:
    """List the versions of a model, the newest last."""
    path = call.path
    items = await call.services.copies.listed("model", path["project"], path["model"])
    if not items:
        raise problems.Missing(
            Code.NOT_FOUND, f"There is no model `{path['model']}` in `{path['project']}`"
        )
    return Response(CopyList(items=items))


@Operation(
    "DELETE",
    VERSION,
    access=AdmittedCallers.MEMBER,
    permission="models:create",
    answers={204: None},
    problems=(409,),
)
async def delete_model(call: Call) -> Response:
    """Delete a version of a model; for its owner and administrators. Its number stays unused."""
    path = call.path
    await call.services.copies.delete(
        "model", path["project"], path["model"], path["version"], call.visitor.person
    )
    return Response(status=204)


@Operation(
    "GET",
    f"{VERSION}/files",
    access=AdmittedCallers.MEMBER,
    permission="models:read",
    answers={200: Artifacts},
)
async def list_model_files(call: Call) -> Response:
    """List the files of a version of a model."""
    return Response(await call.services.copies.files(await _folder(call)))


@Operation(
    "GET",
    f"{VERSION}/files/content",
    access=AdmittedCallers.MEMBER,
    permission="models:read",
    query=FilePathQuery,
    answers={200: bytes},
    problems=(409,),
    media=BYTES,
)
async def read_model_file(call: Call) -> StreamedResponse:
    """Read the content of a file of a model."""
    query: FilePathQuery = call.query
    pieces = call.services.copies.read(await _folder(call), query.path)
    return StreamedResponse(pieces, media=BYTES, ends=True, headers=attachment(query.path))


async def _folder(call: Call) -> StoredFolder:
    path = call.path
    record = await call.services.copies.find(
        "model", path["project"], path["model"], path["version"]
    )
    return StoredFolder(Area.COPIES, path["project"], record.uid)


OPERATIONS: Final = (
    register_model,
    list_models,
    read_model,
    delete_model,
    list_model_files,
    read_model_file,
)
