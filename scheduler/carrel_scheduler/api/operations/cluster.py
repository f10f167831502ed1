"""Operations on nodes, devices and the queue."""

from typing import Final

from carrel_scheduler.api import problems, redact
from carrel_scheduler.api.models import answers, queries
from carrel_scheduler.api.operation import Call, Operation, Response
from carrel_scheduler.api.principals.access import AdmittedCallers
from carrel_scheduler.api.problems import Code
from carrel_scheduler.node.contract import MemoryLimits, MigOrders, MigReport, NodeReport
from carrel_schema.answers import FaultList, NodeView, SetAsideInput

WEEK_SECONDS: Final = 7 * 86_400.0


@Operation("GET", "/nodes", access=AdmittedCallers.USER, answers={200: answers.NodeList})
async def list_nodes(call: Call) -> Response:
    """List nodes with their devices and the workloads that hold them."""
    found = call.services.deps.live.nodes()
    viewer = call.visitor.person
    return Response(answers.NodeList(items=[redact.node(node, viewer) for node in found]))


@Operation("GET", "/nodes/{node}", access=AdmittedCallers.USER, answers={200: NodeView})
async def read_node(call: Call) -> Response:
    """Read one node."""
    for found in call.services.deps.live.nodes():
        if found.name == call.path["node"]:
            return Response(redact.node(found, call.visitor.person))
    raise problems.Missing(Code.NOT_FOUND, f"There is no node `{call.path['node']}`")


@Operation(
    "POST",
    "/nodes/{node}/report",
    access=AdmittedCallers.NODE,
    body=NodeReport,
    answers={200: MemoryLimits},
)
async def report_node(call: Call) -> Response:
    """Record what a node's agent measured of its GPUs; only that agent may call it.

    The answer has the parts of GPUs' memory that pods of the node have, for the driver's limits.
    """
    report: NodeReport = call.body
    known = {device.index for device in report.devices}
    if len(known) < len(report.devices):
        raise problems.invalid_field("devices", Code.BAD_DEVICE, None, "each index once")
    named = [one.index for one in report.use]
    if len(set(named)) < len(named) or not known.issuperset(named):
        raise problems.invalid_field("use", Code.BAD_DEVICE, None, "each index of `devices` once")
    if any({link.first, link.second} - known for link in report.links):
        raise problems.invalid_field("links", Code.BAD_DEVICE, None, "indices of `devices`")
    return Response(call.services.deps.node_agents.take(call.path["node"], report))


@Operation(
    "POST",
    "/nodes/{node}/mig",
    access=AdmittedCallers.NODE,
    body=MigReport,
    answers={200: MigOrders},
)
async def exchange_mig_instances(call: Call) -> Response:
    """Exchange MIG instances with the agent of a node: those to make, and those that it made.

    The answer takes up to 10 s while nothing is wanted.
    """
    agents = call.services.deps.node_agents
    return Response(await agents.exchange(call.path["node"], call.body))


@Operation(
    "POST",
    "/nodes/{node}/devices/{index}/uncordon",
    access=AdmittedCallers.ADMIN,
    permission="nodes:update",
    answers={204: None},
    problems=(409,),
)
async def uncordon_device(call: Call) -> Response:
    """Return a GPU to service that a health check took out; a failed check takes it out again."""
    name, index = call.path["node"], call.path["index"]
    found = next((one for one in call.services.deps.live.nodes() if one.name == name), None)
    devices = {str(device.index): device for device in found.devices} if found else {}
    if index not in devices:
        raise problems.Missing(Code.NOT_FOUND, f"There is no GPU `{name}/{index}`")
    if not call.services.deps.live.uncordon(name, devices[index].index):
        raise problems.Conflicting(
            Code.NOT_CORDONED,
            f"GPU {index} of {name} is not cordoned for its health"
            + (f"; it is broken: {devices[index].message}" if devices[index].broken else ""),
        )
    return Response(status=204)


@Operation(
    "GET",
    "/faults",
    access=AdmittedCallers.ADMIN,
    permission="faults:read",
    answers={200: FaultList},
)
async def read_faults(call: Call) -> Response:
    """List the inputs that the scheduler could not process, and the invariants found violated."""
    found = call.services.deps.live.faults()
    set_aside = [
        SetAsideInput(
            source=one.source,
            key=one.key,
            name=one.name,
            reason=one.reason,
            message=one.message,
            since=one.since,
        )
        for one in found.set_aside
    ]
    return Response(FaultList(set_aside=set_aside, violated_invariants=list(found.violated)))


@Operation(
    "GET",
    "/queue",
    access=AdmittedCallers.USER,
    query=queries.QueueQuery,
    answers={200: answers.Queue},
)
async def read_queue(call: Call) -> Response:
    """List pending workloads in the order in which they are considered."""
    query: queries.QueueQuery = call.query
    viewer, begin = call.visitor.person, query.after
    end = None if query.limit is None else begin + query.limit
    entries = call.services.deps.live.queue()[begin:end]
    return Response(answers.Queue(items=[redact.queue_entry(one, viewer) for one in entries]))


@Operation(
    "GET",
    "/gpu-use",
    access=AdmittedCallers.USER,
    query=queries.GpuUseQuery,
    answers={200: answers.GpuUseList},
)
async def read_gpu_use(call: Call) -> Response:
    """Read GPU utilization and memory of workloads since they, or the scheduler, started."""
    query: queries.GpuUseQuery = call.query
    viewer, live = call.visitor.person, call.services.deps.live
    found = {uid: live.gpu_use(uid) for uid in query.uid}
    return Response(
        answers.GpuUseList(
            items={
                uid: one.points
                for uid, one in found.items()
                if one is not None and viewer.sees(one.project)
            }
        )
    )


OPERATIONS: Final = (
    list_nodes,
    read_node,
    report_node,
    exchange_mig_instances,
    uncordon_device,
    read_faults,
    read_queue,
    read_gpu_use,
)
