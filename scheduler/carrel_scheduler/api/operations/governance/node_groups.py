"""Groups of nodes: for who has the permissions on the platform."""

from typing import Final

from carrel_scheduler.api.operation import Call, Operation, Response
from carrel_scheduler.api.principals.access import AdmittedCallers
from carrel_schema.governance.node_groups import (
    NodeGroupChange,
    NodeGroupCreate,
    NodeGroupList,
    NodeGroupOut,
)

NODE_GROUPS: Final = "/node-groups"
NODE_GROUP: Final = f"{NODE_GROUPS}/{{name}}"


@Operation(
    "GET",
    NODE_GROUPS,
    access=AdmittedCallers.ADMIN,
    permission="node-groups:read",
    answers={200: NodeGroupList},
)
async def list_node_groups(call: Call) -> Response:
    """List the groups of nodes, with who may use each and the nodes in it."""
    return Response(NodeGroupList(items=await call.services.node_groups.all()))


@Operation(
    "POST",
    NODE_GROUPS,
    access=AdmittedCallers.ADMIN,
    permission="node-groups:create",
    body=NodeGroupCreate,
    answers={201: NodeGroupOut},
    problems=(409,),
)
async def create_node_group(call: Call) -> Response:
    """Create a group of nodes."""
    made = await call.services.node_groups.create(call.body, call.visitor.person)
    return Response(made, 201, {"Location": call.address("node-groups", made.name)})


@Operation(
    "PUT",
    NODE_GROUP,
    access=AdmittedCallers.ADMIN,
    permission="node-groups:update",
    body=NodeGroupChange,
    answers={200: NodeGroupOut},
    problems=(404, 409),
)
async def replace_node_group(call: Call) -> Response:
    """Replace a group of nodes; a field left out has its default."""
    person = call.visitor.person
    return Response(await call.services.node_groups.replace(call.path["name"], call.body, person))


@Operation(
    "DELETE",
    NODE_GROUP,
    access=AdmittedCallers.ADMIN,
    permission="node-groups:delete",
    answers={204: None},
    problems=(404, 409),
)
async def delete_node_group(call: Call) -> Response:
    """Delete a group that no project or department names; its nodes are then open to all work."""
    await call.services.node_groups.delete(call.path["name"])
    return Response(status=204)


OPERATIONS: Final = (list_node_groups, create_node_group, replace_node_group, delete_node_group)
