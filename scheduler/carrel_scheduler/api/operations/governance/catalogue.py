"""The catalogue of models that can be served."""

from typing import Final

from carrel_scheduler.api.operation import Call, Operation, Response
from carrel_scheduler.api.principals.access import AdmittedCallers
from carrel_scheduler.policy.catalogue import entries
from carrel_schema.governance.catalogue import CatalogueList


@Operation("GET", "/catalogue", access=AdmittedCallers.USER, answers={200: CatalogueList})
async def list_catalogue(call: Call) -> Response:
    """List the models that the caller may serve, and whether the nodes can hold them."""
    templates = await call.services.templates.visible(call.visitor.person, None)
    return Response(CatalogueList(items=entries(templates, call.services.deps.live.nodes())))


OPERATIONS: Final = (list_catalogue,)
