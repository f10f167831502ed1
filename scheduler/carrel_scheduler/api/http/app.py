"""The Tornado application: routes made from the table of operations."""

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Final

from tornado import web
from tornado.routing import URLSpec

from carrel_scheduler.api import health, openapi
from carrel_scheduler.api.dependencies import ApiDependencies
from carrel_scheduler.api.http.command import CommandHandler
from carrel_scheduler.api.http.forwarding import ForwardHandler
from carrel_scheduler.api.http.handler import ApiHandler, NothingHere, OperationHandler
from carrel_scheduler.api.http.terminal import LARGEST_MESSAGE_BYTES, TerminalHandler
from carrel_scheduler.api.operation import ROOT, Operation
from carrel_scheduler.api.principals.access import RULES, AdmittedCallers
from carrel_scheduler.api.principals.access_rules import AccessRules, RightsIdentity
from carrel_scheduler.api.principals.jobs import JobIdentity
from carrel_scheduler.api.principals.service_accounts import ServiceAccountIdentity
from carrel_scheduler.api.services import Services
from carrel_scheduler.api.table import OPERATIONS
from carrel_schema.governance.roles import ALL

SESSIONS: Final = {
    "open_terminal": TerminalHandler,
    "run_command": CommandHandler,
    "forward_port": ForwardHandler,
}
__all__ = ["ApiDependencies", "make_app"]


def make_app(
    deps: ApiDependencies, operations: Sequence[Operation] = OPERATIONS
) -> web.Application:
    """Build the application; raises ``ValueError`` for an operation without a rule of access."""
    for operation in operations:
        check_operation(operation)
    rules = AccessRules(deps.ledger, deps.membership, deps.clock)
    identity = JobIdentity(deps.identity, rules.lets_submit, deps.ledger, deps.task_tokens)
    accounts = ServiceAccountIdentity(identity, deps.ledger, deps.clock)
    deps = replace(deps, identity=RightsIdentity(accounts, rules), rules=rules)

    @cache
    def document() -> bytes:
        """Make the OpenAPI document when it is first asked for: that takes longer than a start."""
        return openapi.document(operations, deps.prefix)

    services = Services.build(deps, document, accounts.last_uses)

    def log_request(handler: web.RequestHandler) -> None:
        if not isinstance(handler, ApiHandler) or handler.operation is None:
            return
        if isinstance(handler, OperationHandler) and handler.sender is not None:
            return
        seconds = handler.request.request_time()
        services.metrics.observe(handler.operation.id, handler.get_status(), seconds)

    return web.Application(
        [
            *routes(operations, services),
            URLSpec(deps.prefix + health.PATH, health.HealthHandler),
            URLSpec(
                deps.prefix + health.READY_PATH,
                health.ReadyHandler,
                {"trouble": deps.trouble, "faults": deps.live.faults},
            ),
        ],
        default_handler_class=NothingHere,
        default_handler_args={"services": services, "operations": {}},
        log_function=log_request,
        websocket_max_message_size=2 * LARGEST_MESSAGE_BYTES,
        websocket_ping_interval=20,
    )


def routes(operations: Sequence[Operation], services: Services) -> list[URLSpec]:
    """A route for each path, with the operations of its methods."""
    by_path: dict[str, dict[str, Operation]] = {}
    for operation in operations:
        root = services.deps.prefix + ("" if operation.rooted else ROOT)
        methods = by_path.setdefault(root + operation.path, {})
        if operation.method in methods:
            msg = f"{operation.id}: {operation.method} {operation.path} is taken"
            raise ValueError(msg)
        methods[operation.method] = operation
    return [
        URLSpec(
            re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]+)", re.escape(path)),
            next((SESSIONS[one.id] for one in methods.values() if one.websocket), OperationHandler),
            {"services": services, "operations": methods},
        )
        for path, methods in by_path.items()
    ]


def check_operation(operation: Operation) -> None:
    """Refuse an operation without required rights or without documentation."""
    if not (operation.id and operation.summary):
        msg = f"{operation.method} {operation.path} {operation.id}: no id or no summary"
        raise ValueError(msg)
    if operation.access not in RULES:
        msg = f"{operation.id}: access {operation.access!r} has no rule"
        raise ValueError(msg)
    rule = RULES[operation.access]
    needs_one = rule.permitted or (rule.member and operation.access is not AdmittedCallers.SPAWNER)
    if needs_one and operation.permission not in ALL:
        msg = f"{operation.id}: permission {operation.permission!r} is part of no role"
        raise ValueError(msg)
    by_path = rule.member and operation.project_in == "path"
    if by_path and "{project}" not in operation.path:
        msg = f"{operation.id}: access `{operation.access}` needs a project in its path"
        raise ValueError(msg)
    if operation.run is None and not operation.websocket:
        msg = f"{operation.id}: nothing to run"
        raise ValueError(msg)
