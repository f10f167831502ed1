"""Assets: environments, compute resources and data sources, in scopes."""

from typing import Final, get_args

from carrel_scheduler.api import problems
from carrel_scheduler.api.operation import Call, Operation, Response
from carrel_scheduler.api.operations.governance.scoped import InScope, ScopeFilter, scope_of
from carrel_scheduler.api.principals.access import AdmittedCallers
from carrel_scheduler.api.problems import Code
from carrel_schema.governance.assets import AssetFields, AssetList, AssetOut, AssetType

ASSETS: Final = "/assets"
ASSET: Final = f"{ASSETS}/{{type}}/{{name}}"


@Operation("GET", ASSETS, access=AdmittedCallers.USER, query=ScopeFilter, answers={200: AssetList})
async def list_assets(call: Call) -> Response:
    """List the assets that the caller may use."""
    scope = None if call.query.scope is None else scope_of(call.query.scope)
    return Response(AssetList(items=await call.services.assets.visible(call.visitor.person, scope)))


@Operation("GET", ASSET, access=AdmittedCallers.USER, query=InScope, answers={200: AssetOut})
async def read_asset(call: Call) -> Response:
    """Read one asset."""
    scope = scope_of(call.query.scope)
    person = call.visitor.person
    return Response(await call.services.assets.get(_type(call), call.path["name"], scope, person))


@Operation(
    "PUT",
    ASSET,
    access=AdmittedCallers.USER,
    query=InScope,
    body=AssetFields,
    answers={200: AssetOut},
    problems=(403, 404, 409),
)
async def put_asset(call: Call) -> Response:
    """Create an asset, or replace it."""
    scope, person = scope_of(call.query.scope), call.visitor.person
    made = await call.services.assets.put(_type(call), call.path["name"], scope, call.body, person)
    return Response(made)


@Operation(
    "DELETE",
    ASSET,
    access=AdmittedCallers.USER,
    query=InScope,
    answers={204: None},
    problems=(403, 404),
)
async def delete_asset(call: Call) -> Response:
    """Delete an asset; work that uses it goes on."""
    scope, person = scope_of(call.query.scope), call.visitor.person
    await call.services.assets.delete(_type(call), call.path["name"], scope, person)
    return Response(status=204)


def _type(call: Call) -> AssetType:
    found: AssetType
    for found in get_args(AssetType):
        if found == call.path["type"]:
            return found
    known = ", ".join(f"`{one}`" for one in get_args(AssetType))
    raise problems.Missing(Code.NOT_FOUND, f"There are assets of the types {known}")


OPERATIONS: Final = (list_assets, read_asset, put_asset, delete_asset)
