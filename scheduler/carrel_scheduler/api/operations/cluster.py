"""Nodes and devices, the queue, use."""

from typing import Final

from carrel_scheduler.api import problems, redact
from carrel_scheduler.api.access import Access
from carrel_scheduler.api.models import answers, queries
from carrel_scheduler.api.operation import Answer, Call, Operation
from carrel_scheduler.api.problems import Code
from carrel_scheduler.workloads.contract import NodeView

WEEK_SECONDS: Final = 7 * 86_400.0


async def nodes(call: Call) -> Answer:
    """All nodes; foreign holders by project only."""
    found = call.services.deps.live.nodes()
    viewer = call.visitor.person
    return Answer(answers.NodeList(items=[redact.node(node, viewer) for node in found]))


async def node(call: Call) -> Answer:
    """One node."""
    for found in call.services.deps.live.nodes():
        if found.name == call.path["node"]:
            return Answer(redact.node(found, call.visitor.person))
    raise problems.Missing(Code.NOT_FOUND, f"There is no node `{call.path['node']}`")


async def queue(call: Call) -> Answer:
    """Waiting workloads in the order of service."""
    viewer = call.visitor.person
    entries = [redact.queue_entry(entry, viewer) for entry in call.services.deps.live.queue()]
    return Answer(answers.Queue(items=entries))


async def usage(call: Call) -> Answer:
    """Use in a span of time, of the projects that the caller sees."""
    query: queries.UsageQuery = call.query
    deps = call.services.deps
    until = deps.clock() if query.until is None else query.until
    since = max(0.0, until - WEEK_SECONDS) if query.since is None else query.since
    if since > until:
        raise problems.invalid_field("since", Code.TOO_BIG, since, f"at most `until`, {until}")
    projects = call.visitor.person.visible_projects()
    items = (
        []
        if projects == []
        else await deps.ledger.usage(by=query.by, since=since, until=until, projects=projects)
    )
    return Answer(answers.UsageList(items=items, since=since, until=until))


OPERATIONS: Final = (
    Operation(
        id="list_nodes",
        method="GET",
        path="/nodes",
        access=Access.USER,
        summary="Nodes and devices, and who holds them",
        answers={200: answers.NodeList},
        run=nodes,
    ),
    Operation(
        id="read_node",
        method="GET",
        path="/nodes/{node}",
        access=Access.USER,
        summary="One node",
        answers={200: NodeView},
        run=node,
    ),
    Operation(
        id="read_queue",
        method="GET",
        path="/queue",
        access=Access.USER,
        summary="Waiting workloads in the order of service",
        answers={200: answers.Queue},
        run=queue,
    ),
    Operation(
        id="read_usage",
        method="GET",
        path="/usage",
        access=Access.USER,
        summary="Use by project, user or workload in a span of time",
        query=queries.UsageQuery,
        answers={200: answers.UsageList},
        run=usage,
    ),
)
