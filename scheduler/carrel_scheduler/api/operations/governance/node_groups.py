"""Groups of nodes: for who has the permissions on the platform."""

from typing import Final

from carrel_scheduler.api.operation import Answer, Call, Operation
from carrel_scheduler.api.principals.access import Access
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
    access=Access.ADMIN,
    permission="node-groups:read",
    answers={200: NodeGroupList},
)
async def list_node_groups(call: Call) -> Answer:
    """Groups of nodes: whose work may go there, and what is in each now."""
    return Answer(NodeGroupList(items=await call.services.node_groups.all()))


@Operation(
    "POST",
    NODE_GROUPS,
    access=Access.ADMIN,
    permission="node-groups:create",
    body=NodeGroupCreate,
    answers={201: NodeGroupOut},
    problems=(409,),
)
async def create_node_group(call: Call) -> Answer:
    """Define a group of nodes."""
    made = await call.services.node_groups.create(call.body, call.visitor.person)
    return Answer(made, 201, {"Location": call.address("node-groups", made.name)})


@Operation(
    "PUT",
    NODE_GROUP,
    access=Access.ADMIN,
    permission="node-groups:update",
    body=NodeGroupChange,
    answers={200: NodeGroupOut},
    problems=(404, 409),
)
async def replace_node_group(call: Call) -> Answer:
    """Define a group anew: what is not said is as by default."""
    person = call.visitor.person
    return Answer(await call.services.node_groups.replace(call.path["name"], call.body, person))


@Operation(
    "DELETE",
    NODE_GROUP,
    access=Access.ADMIN,
    permission="node-groups:delete",
    answers={204: None},
    problems=(404, 409),
)
async def delete_node_group(call: Call) -> Answer:
    """Remove a definition that nobody's work is kept to; its nodes are open to all work then."""
    await call.services.node_groups.delete(call.path["name"])
    return Answer(status=204)


OPERATIONS: Final = (list_node_groups, create_node_group, replace_node_group, delete_node_group)
