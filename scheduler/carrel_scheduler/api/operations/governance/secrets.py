"""Operations on named secrets, whose values are written and never read."""

from typing import Final

from carrel_scheduler.api.operation import Call, Operation, Response
from carrel_scheduler.api.operations.governance.scoped import InScope, ScopeFilter, scope_of
from carrel_scheduler.api.principals.access import AdmittedCallers
from carrel_schema.governance.secrets import SecretFields, SecretList, SecretOut

SECRETS: Final = "/secrets"
SECRET: Final = f"{SECRETS}/{{name}}"


@Operation(
    "GET", SECRETS, access=AdmittedCallers.USER, query=ScopeFilter, answers={200: SecretList}
)
async def list_secrets(call: Call) -> Response:
    """List the secrets that the caller's work may use, without their values."""
    scope = None if call.query.scope is None else scope_of(call.query.scope)
    found = await call.services.secrets.visible(call.visitor.person, scope)
    return Response(SecretList(items=found))


@Operation("GET", SECRET, access=AdmittedCallers.USER, query=InScope, answers={200: SecretOut})
async def read_secret(call: Call) -> Response:
    """Read one secret, without its values."""
    scope = scope_of(call.query.scope)
    return Response(await call.services.secrets.get(call.path["name"], scope, call.visitor.person))


@Operation(
    "PUT",
    SECRET,
    access=AdmittedCallers.USER,
    query=InScope,
    body=SecretFields,
    answers={200: SecretOut},
    problems=(403, 404, 409),
)
async def put_secret(call: Call) -> Response:
    """Create a secret, or replace its values."""
    scope = scope_of(call.query.scope)
    made = await call.services.secrets.put(call.path["name"], scope, call.body, call.visitor.person)
    return Response(made)


@Operation(
    "DELETE",
    SECRET,
    access=AdmittedCallers.USER,
    query=InScope,
    answers={204: None},
    problems=(403, 404),
)
async def delete_secret(call: Call) -> Response:
    """Delete a secret."""
    scope = scope_of(call.query.scope)
    await call.services.secrets.delete(call.path["name"], scope, call.visitor.person)
    return Response(status=204)


OPERATIONS: Final = (list_secrets, read_secret, put_secret, delete_secret)
