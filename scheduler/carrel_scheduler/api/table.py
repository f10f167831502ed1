"""All operations of the API, in the order of the documentation."""

from typing import Final

from carrel_scheduler.api.models.queries import CommandQuery, ExecQuery, ForwardQuery
from carrel_scheduler.api.operation import Operation
from carrel_scheduler.api.operations import (
    caller,
    cluster,
    code,
    departments,
    events,
    experiments,
    files,
    gateway,
    insight,
    models,
    projects,
    results,
    workers,
    workloads,
)
from carrel_scheduler.api.operations.governance import (
    access,
    accounting,
    alerts,
    audit,
    policies,
    samples,
    secrets,
    service_accounts,
    templates,
    users,
)
from carrel_scheduler.api.operations.paths import WORKLOAD
from carrel_scheduler.api.principals.access import Access

TERMINAL: Final = Operation(
    "GET",
    f"{WORKLOAD}/exec",
    id="open_terminal",
    permission="workloads:update",
    others="workloads:enter",
    access=Access.OWNER,
    summary="A terminal beside the running task, over a websocket",
    query=ExecQuery,
    answers={101: None},
    problems=(409,),
    websocket=True,
    audited=True,
)
COMMAND: Final = Operation(
    "GET",
    f"{WORKLOAD}/run",
    id="run_command",
    permission="workloads:update",
    others="workloads:enter",
    access=Access.OWNER,
    summary="A command beside the running task, without a terminal, over a websocket",
    query=CommandQuery,
    answers={101: None},
    problems=(409,),
    websocket=True,
    audited=True,
)
FORWARD: Final = Operation(
    "GET",
    f"{WORKLOAD}/forward",
    id="forward_port",
    permission="workloads:update",
    others="workloads:enter",
    access=Access.OWNER,
    summary="A connection to a port of the running task, over a websocket",
    query=ForwardQuery,
    answers={101: None},
    problems=(409,),
    websocket=True,
    audited=True,
)
OPERATIONS: Final[tuple[Operation, ...]] = (
    *workloads.OPERATIONS,
    *insight.OPERATIONS,
    *experiments.OPERATIONS,
    *workers.OPERATIONS,
    *results.OPERATIONS,
    *samples.OPERATIONS,
    *code.OPERATIONS,
    *files.OPERATIONS,
    *models.OPERATIONS,
    *events.OPERATIONS,
    TERMINAL,
    COMMAND,
    FORWARD,
    *projects.OPERATIONS,
    *access.OPERATIONS,
    *accounting.OPERATIONS,
    *alerts.OPERATIONS,
    *policies.OPERATIONS,
    *templates.OPERATIONS,
    *secrets.OPERATIONS,
    *service_accounts.OPERATIONS,
    *users.OPERATIONS,
    *departments.OPERATIONS,
    *cluster.OPERATIONS,
    *audit.OPERATIONS,
    *caller.OPERATIONS,
    *gateway.OPERATIONS,
)
