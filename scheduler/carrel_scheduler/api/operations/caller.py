"""Operations about the caller, the activity of workspaces, and the API itself."""

from typing import Final

import msgspec

from carrel_scheduler.api import problems
from carrel_scheduler.api.models.workloads import ActivityIn
from carrel_scheduler.api.operation import Call, Operation, Response
from carrel_scheduler.api.principals.access import AdmittedCallers
from carrel_scheduler.api.principals.identity import METRICS
from carrel_scheduler.api.problems import Code
from carrel_scheduler.api.services.prometheus.metrics import MEDIA_TYPE
from carrel_scheduler.workloads.contract import Activity
from carrel_schema.answers import WhoAmI
from carrel_schema.governance.kubeconfig import ClusterAccess, ProjectNamespace
from carrel_schema.governance.roles import ALL
from carrel_schema.names import namespace_of
from carrel_schema.objects import Limits

DEFAULT_PROJECT: Final = "default_project"


@Operation("GET", "/whoami", access=AdmittedCallers.USER, answers={200: WhoAmI}, for_jobs=True)
async def whoami(call: Call) -> Response:
    """Answer who the caller is, and with which roles and permissions."""
    caller = call.visitor.person
    visible = [project.meta.name for project in await call.services.projects.visible(caller)]
    own = [name for name in visible if name in caller.projects] or visible
    usual = (await call.services.deps.ledger.settings()).get(DEFAULT_PROJECT)
    # With several, none is the first that comes: work goes where its user means it to.
    default = usual if usual in own else own[0] if len(own) == 1 else None
    return Response(
        WhoAmI(
            user=caller.name,
            admin=caller.admin,
            projects=visible,
            default_project=default,
            roles=call.services.access.held(caller),
            permissions=sorted(one for one in ALL if caller.may_anywhere(one)),
        )
    )


@Operation(
    "GET",
    "/cluster-access",
    access=AdmittedCallers.USER,
    answers={200: ClusterAccess},
    problems=(409,),
)
async def read_cluster_access(call: Call) -> Response:
    """Answer how the caller reaches the cluster's API server, without any credential."""
    deps = call.services.deps
    if deps.cluster_access is None:
        raise problems.Conflicting(
            Code.NO_CLUSTER,
            "There is no API server for kubectl here: Carrel runs on one machine, or its "
            "administrators did not set CARREL_API_SERVER.",
        )
    visible = await call.services.projects.visible(call.visitor.person)
    found = [
        ProjectNamespace(project=name, namespace=namespace_of(name))
        for name in sorted(project.meta.name for project in visible)
    ]
    return Response(msgspec.structs.replace(deps.cluster_access, namespaces=found))


@Operation(
    "POST",
    "/workspaces/activity",
    access=AdmittedCallers.USER,
    body=ActivityIn,
    answers={200: Limits},
    problems=(404,),
    audited=False,
)
async def workspace_activity(call: Call) -> Response:
    """Record activity of the caller's workspace, and answer its next time limits."""
    body: ActivityIn = call.body
    deps = call.services.deps
    sign = Activity(
        at=deps.clock() if body.at is None else body.at,
        busy_since=body.busy_since,
        last_input_at=body.last_input_at,
        kernels=body.kernels,
        terminals=body.terminals,
    )
    caller = call.visitor.person
    if caller.kind != "user":
        raise problems.PermissionDenied(
            Code.USER_EXPECTED, "Only a user's own workspace has activity"
        )
    return Response(await deps.live.activity(caller.name, body.server_name, sign))


@Operation("GET", "/openapi.json", access=AdmittedCallers.USER, answers={200: dict})
async def openapi(call: Call) -> Response:
    """Answer this API as an OpenAPI 3.1 document."""
    return Response(call.services.document())


@Operation(
    "GET",
    "/metrics",
    access=AdmittedCallers.ADMIN,
    permission="metrics:read",
    also_scope=METRICS,
    answers={200: str},
    media="text/plain",
    rooted=True,
)
async def prometheus_metrics(call: Call) -> Response:
    """Answer the scheduler's metrics in Prometheus' text format."""
    return Response(await call.services.metrics.text(), media=MEDIA_TYPE)


OPERATIONS: Final = (
    whoami,
    read_cluster_access,
    workspace_activity,
    openapi,
    prometheus_metrics,
)
