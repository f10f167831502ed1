"""Templates: people's own, those of their projects, and those of administrators."""

from typing import Final

from carrel_scheduler.api.operation import Call, Operation, Response
from carrel_scheduler.api.operations.governance.scoped import InScope, ScopeFilter, scope_of
from carrel_scheduler.api.principals.access import AdmittedCallers
from carrel_schema.governance.templates import TemplateFields, TemplateList, TemplateOut

TEMPLATES: Final = "/templates"
TEMPLATE: Final = f"{TEMPLATES}/{{name}}"


@Operation(
    "GET", TEMPLATES, access=AdmittedCallers.USER, query=ScopeFilter, answers={200: TemplateList}
)
async def list_templates(call: Call) -> Response:
    """List the templates that the caller may use."""
    scope = None if call.query.scope is None else scope_of(call.query.scope)
    found = await call.services.templates.visible(call.visitor.person, scope)
    return Response(TemplateList(items=found))


@Operation("GET", TEMPLATE, access=AdmittedCallers.USER, query=InScope, answers={200: TemplateOut})
async def read_template(call: Call) -> Response:
    """Read one template."""
    scope = scope_of(call.query.scope)
    return Response(
        await call.services.templates.get(call.path["name"], scope, call.visitor.person)
    )


@Operation(
    "PUT",
    TEMPLATE,
    access=AdmittedCallers.USER,
    query=InScope,
    body=TemplateFields,
    answers={200: TemplateOut},
    problems=(403, 404, 409),
)
async def put_template(call: Call) -> Response:
    """Create a template, or replace it."""
    scope = scope_of(call.query.scope)
    made = await call.services.templates.put(
        call.path["name"], scope, call.body, call.visitor.person
    )
    return Response(made)


@Operation(
    "DELETE",
    TEMPLATE,
    access=AdmittedCallers.USER,
    query=InScope,
    answers={204: None},
    problems=(403, 404),
)
async def delete_template(call: Call) -> Response:
    """Delete a template."""
    scope = scope_of(call.query.scope)
    await call.services.templates.delete(call.path["name"], scope, call.visitor.person)
    return Response(status=204)


OPERATIONS: Final = (list_templates, read_template, put_template, delete_template)
