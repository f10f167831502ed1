"""Assets: environments, compute resources and data sources, in scopes."""

from typing import Final, get_args

from carrel_scheduler.api import problems
from carrel_scheduler.api.operation import Answer, Call, Operation
from carrel_scheduler.api.operations.governance.scoped import InScope, ScopeFilter, scope_of
from carrel_scheduler.api.principals.access import Access
from carrel_scheduler.api.problems import Code
from carrel_schema.governance.assets import AssetFields, AssetList, AssetOut, AssetType

ASSETS: Final = "/assets"
ASSET: Final = f"{ASSETS}/{{type}}/{{name}}"


@Operation("GET", ASSETS, access=Access.USER, query=ScopeFilter, answers={200: AssetList})
async def list_assets(call: Call) -> Answer:
    """List the assets that the caller may use."""
    scope = None if call.query.scope is None else scope_of(call.query.scope)
    return Answer(AssetList(items=await call.services.assets.visible(call.visitor.person, scope)))


@Operation("GET", ASSET, access=Access.USER, query=InScope, answers={200: AssetOut})
async def read_asset(call: Call) -> Answer:
    """Read one asset."""
    scope = scope_of(call.query.scope)
    person = call.visitor.person
    return Answer(await call.services.assets.get(_type(call), call.path["name"], scope, person))


@Operation(
    "PUT",
    ASSET,
    access=Access.USER,
    query=InScope,
    body=AssetFields,
    answers={200: AssetOut},
    problems=(403, 404, 409),
)
async def put_asset(call: Call) -> Answer:
    """Create an asset, or replace it."""
    scope, person = scope_of(call.query.scope), call.visitor.person
    made = await call.services.assets.put(_type(call), call.path["name"], scope, call.body, person)
    return Answer(made)


@Operation(
    "DELETE", ASSET, access=Access.USER, query=InScope, answers={204: None}, problems=(403, 404)
)
async def delete_asset(call: Call) -> Answer:
    """Delete an asset; work that uses it goes on."""
    scope, person = scope_of(call.query.scope), call.visitor.person
    await call.services.assets.delete(_type(call), call.path["name"], scope, person)
    return Answer(status=204)


def _type(call: Call) -> AssetType:
    found: AssetType
    for found in get_args(AssetType):
        if found == call.path["type"]:
            return found
    known = ", ".join(f"`{one}`" for one in get_args(AssetType))
    raise problems.Missing(Code.NOT_FOUND, f"There are assets of the types {known}")


OPERATIONS: Final = (list_assets, read_asset, put_asset, delete_asset)
