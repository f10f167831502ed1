"""Operations on roles and access rules, and the check of the caller's permissions."""

from typing import Annotated, Final

import msgspec

from carrel_scheduler.api.operation import Call, Operation, Response
from carrel_scheduler.api.operations.governance.scoped import (
    ScopeFilter,
    ScopeText,
    of_body,
    scope_of,
)
from carrel_scheduler.api.principals.access import AdmittedCallers
from carrel_schema.constraints import Constraint
from carrel_schema.governance.roles import (
    ROLES,
    AccessRuleFields,
    AccessRuleList,
    AccessRuleOut,
    PermissionCheck,
    RoleList,
    RoleOut,
)

RULES: Final = "/access-rules"


class PermissionQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A permission, as ``projects:create``, and where it is asked for."""

    permission: Annotated[str, Constraint(min_length=1, max_length=100)]
    scope: ScopeText = "platform"


@Operation("GET", "/roles", access=AdmittedCallers.USER, answers={200: RoleList})
async def list_roles(_call: Call) -> Response:
    """List all roles and their permissions."""
    return Response(
        RoleList(
            items=[
                RoleOut(
                    name=name,
                    description=role.description,
                    permissions=sorted(role.permissions),
                    scopes=role.levels,
                )
                for name, role in ROLES.items()
            ]
        )
    )


@Operation(
    "GET", RULES, access=AdmittedCallers.USER, query=ScopeFilter, answers={200: AccessRuleList}
)
async def list_access_rules(call: Call) -> Response:
    """List the caller's own access rules, and those of scopes whose rules the caller may read."""
    scope = None if call.query.scope is None else scope_of(call.query.scope)
    found = await call.services.access.visible(call.visitor.person, scope)
    return Response(AccessRuleList(items=found))


@Operation(
    "POST",
    RULES,
    access=AdmittedCallers.ADMIN,
    permission="access-rules:update",
    scope=of_body,
    body=AccessRuleFields,
    answers={201: AccessRuleOut},
)
async def create_access_rule(call: Call) -> Response:
    """Create an access rule: give a user or a group a role in a scope."""
    body: AccessRuleFields = call.body
    made = await call.services.access.grant(body, scope_of(body.scope), call.visitor.person)
    return Response(made, 201, {"Location": call.address("access-rules", made.id)})


@Operation(
    "DELETE",
    f"{RULES}/{{rule}}",
    access=AdmittedCallers.USER,
    answers={204: None},
    problems=(403, 404),
)
async def delete_access_rule(call: Call) -> Response:
    """Delete an access rule."""
    await call.services.access.revoke(call.path["rule"], call.visitor.person)
    return Response(status=204)


@Operation(
    "GET",
    "/permission",
    access=AdmittedCallers.USER,
    query=PermissionQuery,
    answers={200: PermissionCheck},
)
async def check_permission(call: Call) -> Response:
    """Check whether the caller has a permission in a scope."""
    query: PermissionQuery = call.query
    scope = scope_of(query.scope)
    return Response(call.services.access.check(query.permission, scope, call.visitor.person))


OPERATIONS: Final = (
    list_roles,
    list_access_rules,
    create_access_rule,
    delete_access_rule,
    check_permission,
)
