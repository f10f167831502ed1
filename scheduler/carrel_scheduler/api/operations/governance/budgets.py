"""Budgets of departments, projects and users."""

from typing import Final

from carrel_scheduler.api.operation import Call, Operation, Response
from carrel_scheduler.api.operations.governance.scoped import InScope, of_query, scope_of
from carrel_scheduler.api.principals.access import AdmittedCallers
from carrel_schema.governance.costs import BudgetFields, BudgetList, BudgetOut

BUDGETS: Final = "/budgets"
BUDGET: Final = "/budget"


@Operation("GET", BUDGETS, access=AdmittedCallers.USER, answers={200: BudgetList})
async def list_budgets(call: Call) -> Response:
    """List the budgets of scopes that the caller may see, with what is used of each."""
    return Response(BudgetList(items=await call.services.budgets.visible(call.visitor.person)))


@Operation(
    "PUT",
    BUDGET,
    access=AdmittedCallers.ADMIN,
    permission="budgets:update",
    scope=of_query,
    query=InScope,
    body=BudgetFields,
    answers={200: BudgetOut},
    problems=(404, 409),
)
async def put_budget(call: Call) -> Response:
    """Create the budget of a scope, or replace it."""
    scope = scope_of(call.query.scope)
    return Response(await call.services.budgets.put(scope, call.body, call.visitor.person))


@Operation(
    "DELETE",
    BUDGET,
    access=AdmittedCallers.ADMIN,
    permission="budgets:update",
    scope=of_query,
    query=InScope,
    answers={204: None},
    problems=(404,),
)
async def delete_budget(call: Call) -> Response:
    """Delete the budget of a scope."""
    await call.services.budgets.delete(scope_of(call.query.scope))
    return Response(status=204)


OPERATIONS: Final = (list_budgets, put_budget, delete_budget)
