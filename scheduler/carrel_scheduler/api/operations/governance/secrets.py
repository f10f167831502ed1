"""Operations on named secrets, whose values are written and never read."""

from typing import Final

from carrel_scheduler.api.operation import Answer, Call, Operation
from carrel_scheduler.api.operations.governance.scoped import InScope, ScopeFilter, scope_of
from carrel_scheduler.api.principals.access import Access
from carrel_schema.governance.secrets import SecretFields, SecretList, SecretOut

SECRETS: Final = "/secrets"
SECRET: Final = f"{SECRETS}/{{name}}"


@Operation("GET", SECRETS, access=Access.USER, query=ScopeFilter, answers={200: SecretList})
async def list_secrets(call: Call) -> Answer:
    """List the secrets that the caller's work may use, without their values."""
    scope = None if call.query.scope is None else scope_of(call.query.scope)
    found = await call.services.secrets.visible(call.visitor.person, scope)
    return Answer(SecretList(items=found))


@Operation("GET", SECRET, access=Access.USER, query=InScope, answers={200: SecretOut})
async def read_secret(call: Call) -> Answer:
    """Read one secret, without its values."""
    scope = scope_of(call.query.scope)
    return Answer(await call.services.secrets.get(call.path["name"], scope, call.visitor.person))


@Operation(
    "PUT",
    SECRET,
    access=Access.USER,
    query=InScope,
    body=SecretFields,
    answers={200: SecretOut},
    problems=(403, 404, 409),
)
async def put_secret(call: Call) -> Answer:
    """Create a secret, or replace its values."""
    scope = scope_of(call.query.scope)
    made = await call.services.secrets.put(call.path["name"], scope, call.body, call.visitor.person)
    return Answer(made)


@Operation(
    "DELETE", SECRET, access=Access.USER, query=InScope, answers={204: None}, problems=(403, 404)
)
async def delete_secret(call: Call) -> Answer:
    """Delete a secret."""
    scope = scope_of(call.query.scope)
    await call.services.secrets.delete(call.path["name"], scope, call.visitor.person)
    return Answer(status=204)


OPERATIONS: Final = (list_secrets, read_secret, put_secret, delete_secret)
