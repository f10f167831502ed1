"""Service accounts and their tokens."""

from typing import Final

from carrel_scheduler.api.operation import Call, Operation, Response
from carrel_scheduler.api.operations.governance.scoped import InScope, of_query, scope_of
from carrel_scheduler.api.principals.access import AdmittedCallers
from carrel_schema.governance.service_accounts import (
    NewToken,
    ServiceAccountFields,
    ServiceAccountList,
    ServiceAccountOut,
    TokenRequest,
)

ACCOUNTS: Final = "/service-accounts"
ACCOUNT: Final = f"{ACCOUNTS}/{{name}}"
TOKENS: Final = f"{ACCOUNT}/tokens"


@Operation("GET", ACCOUNTS, access=AdmittedCallers.USER, answers={200: ServiceAccountList})
async def list_service_accounts(call: Call) -> Response:
    """List the service accounts of scopes that the caller administers."""
    found = await call.services.service_accounts.visible(call.visitor.person)
    return Response(ServiceAccountList(items=found))


@Operation(
    "PUT",
    ACCOUNT,
    access=AdmittedCallers.ADMIN,
    permission="service-accounts:update",
    scope=of_query,
    query=InScope,
    body=ServiceAccountFields,
    answers={200: ServiceAccountOut},
    problems=(409,),
)
async def put_service_account(call: Call) -> Response:
    """Create a service account, or change its description."""
    scope = scope_of(call.query.scope)
    made = await call.services.service_accounts.put(
        call.path["name"], scope, call.body, call.visitor.person
    )
    return Response(made)


@Operation("DELETE", ACCOUNT, access=AdmittedCallers.USER, answers={204: None}, problems=(403, 404))
async def delete_service_account(call: Call) -> Response:
    """Delete a service account, its tokens and its roles."""
    await call.services.service_accounts.delete(call.path["name"], call.visitor.person)
    return Response(status=204)


@Operation(
    "POST",
    TOKENS,
    access=AdmittedCallers.USER,
    body=TokenRequest,
    answers={201: NewToken},
    problems=(403, 404, 409),
)
async def create_service_token(call: Call) -> Response:
    """Create a token of a service account; only this answer contains it."""
    made = await call.services.service_accounts.add_token(
        call.path["name"], call.body.days, call.visitor.person
    )
    return Response(made, 201)


@Operation(
    "DELETE",
    f"{TOKENS}/{{token}}",
    access=AdmittedCallers.USER,
    answers={204: None},
    problems=(403, 404, 409),
)
async def revoke_service_token(call: Call) -> Response:
    """Revoke a token of a service account."""
    path = call.path
    person = call.visitor.person
    await call.services.service_accounts.revoke_token(path["name"], path["token"], person)
    return Response(status=204)


OPERATIONS: Final = (
    list_service_accounts,
    put_service_account,
    delete_service_account,
    create_service_token,
    revoke_service_token,
)
