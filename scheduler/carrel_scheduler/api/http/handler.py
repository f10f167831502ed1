"""HTTP around the operations: authentication of every call, and problems as answers.

``ApiHandler.admit`` is the only entry: it finds the operation, identifies the caller and applies
the operation's rule before the body is looked at. A refused body is read to its end and thrown
away, so that the refusal arrives and the connection stays usable.
"""

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Mapping
from typing import Any, Final

import msgspec
from tornado import web
from tornado.http1connection import HTTP1Connection
from typing_extensions import override

from carrel_scheduler.api import problems, refusals
from carrel_scheduler.api.encoding import to_json
from carrel_scheduler.api.http import dispatch, requests
from carrel_scheduler.api.http.streaming import StreamSender
from carrel_scheduler.api.operation import BYTES, Call, Operation, Response, StreamedResponse
from carrel_scheduler.api.principals.access import Visitor
from carrel_scheduler.api.principals.authentication import token_of
from carrel_scheduler.api.problems import Broken, Code, Problem
from carrel_scheduler.api.services import Services
from carrel_scheduler.api.services.event_stream import Watcher
from carrel_scheduler.api.services.governance.audit import AuditDetails, Origin, origin_of
from carrel_scheduler.ledger.audit.actor import Actor
from carrel_scheduler.ledger.store import StoreError

log = logging.getLogger(__name__)
LEAST_PAUSE_SECONDS: Final = 0.05
TOLD: Final = frozenset({Code.POLICY, Code.LOOSENS_POLICY})
"""Refusals of what somebody was allowed to ask for that the audit log tells of."""


class ApiHandler(web.RequestHandler):
    """Handles the requests of one path; ``operations`` are those of the path, by method."""

    services: Services
    operations: Mapping[str, Operation]
    operation: Operation | None = None
    visitor: Visitor
    token = ""
    caller = ""
    actor: Actor | None = None

    @override
    def initialize(self, services: Services, operations: Mapping[str, Operation]) -> None:
        """Set the route's values; called by Tornado."""
        self.services, self.operations = services, operations

    @override
    def set_default_headers(self) -> None:
        """Set headers against sniffing and caching, and remove the banner."""
        self.clear_header("Server")
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header("Cache-Control", "no-store")

    @override
    def compute_etag(self) -> str | None:
        """None: answers change all the time."""
        return None

    @property
    def path(self) -> dict[str, str]:
        """The named parts of the path."""
        return {name: str(value) for name, value in self.path_kwargs.items()}

    async def admit(self) -> None:
        """Let the caller in or raise a problem."""
        method = self.request.method or ""
        operation = self.operations.get(method)
        if operation is None:
            raise problems.WrongMethod(method, tuple(self.operations))
        self.operation = operation
        self.token = token_of(self.request.headers.get("Authorization", ""))
        path = self.path
        requests.check_path(path)
        try:
            self.visitor = await dispatch.admit(operation, self.services.deps, self.token, path)
        except problems.PermissionDenied:
            self.caller = await dispatch.name_of(self.services.deps, self.token)
            raise
        if self.visitor.principal is not None:
            self.caller = self.visitor.principal.name
        if operation.in_audit_log:
            self.actor = self.services.audit.begin(self.visitor, self.origin, operation.id)

    @property
    def origin(self) -> Origin:
        """The origin of the request."""
        return origin_of(self.request.headers, self.request.remote_ip or "")

    async def note(self, call: Call) -> None:
        """Record this call in the audit log."""
        if self.actor is not None:
            more = _given(call.query) | _given(call.body)
            await self.services.audit.note(self.actor, self.visitor, AuditDetails(self.path, more))

    def _tell_refusal(self, problem: Problem) -> None:
        """Record refusals for missing rights in the audit log, not invalid requests."""
        operation = self.operation
        if operation is None or (problem.status not in (401, 403) and problem.code not in TOLD):
            return
        code = problem.code
        self.services.audit.refused(self.caller, self.origin, operation.id, self.path, code)

    def read_call(self, operation: Operation, body: bytes) -> Call:
        """Validate query and body, and membership in the project that they name."""
        query = requests.read_query(operation.query, self.request.query_arguments)
        content: Any = None
        media = self.request.headers.get("Content-Type", "")
        if operation.raw_bytes:
            requests.check_media_type(media, (BYTES,))
            content = body
        elif operation.body is not None:
            requests.check_media_type(media)
            changes = operation.method == "PATCH"
            read = requests.read_changes if changes else requests.read_body
            content = read(operation.body, body)
        named = {"path": None, "query": query, "body": content}[operation.project_in]
        for project, kind in requests.projects_of(named):
            dispatch.check_named_project(operation, self.visitor, project, kind)
        call = Call(
            services=self.services,
            visitor=self.visitor,
            token=self.token,
            path=self.path,
            query=query,
            body=content,
            header=lambda name: str(self.request.headers.get(name, "")),
        )
        dispatch.check_scope(operation, call)
        return call

    @override
    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Write a refusal or failure as ``application/problem+json``."""
        error = kwargs.get("exc_info", (None, None, None))[1]
        problem = self._problem(status_code, error)
        self._tell_refusal(problem)
        self.set_status(problem.status)
        self.set_header("Content-Type", problems.MEDIA_TYPE)
        for name, value in problem.headers.items():
            self.set_header(name, value)
        self.finish(to_json(problem.body()))

    def _problem(self, status: int, error: BaseException | None) -> Problem:
        known = None if error is None else refusals.from_exception(error)
        if known is not None:
            return known
        if isinstance(error, web.HTTPError) and status < 500:
            if status == 405:
                return problems.WrongMethod(self.request.method or "", tuple(self.operations))
            return problems.BadRequest(Code.MALFORMED_REQUEST, "The request cannot be read")
        error_id = uuid.uuid4().hex[:12]
        name = self.operation.id if self.operation else "no operation"
        log.error("error %s in %s", error_id, name, exc_info=error)
        return Broken(error_id)

    @override
    def log_exception(self, typ: Any, value: Any, tb: Any) -> None:
        """Log nothing: refusals need no line, failures are logged under the id that is answered."""


@web.stream_request_body
class OperationHandler(ApiHandler):
    """Runs the operations of one path."""

    sender: StreamSender | None = None
    _refusal: Problem | None = None

    @override
    def initialize(self, services: Services, operations: Mapping[str, Operation]) -> None:
        """See the base."""
        super().initialize(services, operations)
        self._body = bytearray()
        asked = operations.get(self.request.method or "")
        self._most = (asked.raw_bytes if asked else 0) or requests.MOST_BODY_BYTES

    @override
    async def prepare(self) -> None:
        """Decide about the caller; a refusal is told when the body has passed by."""
        if isinstance(self.request.connection, HTTP1Connection):
            self.request.connection.set_max_body_size(requests.MOST_DRAINED_BYTES)
        length = self.request.headers.get("Content-Length", "0")
        size = int(length) if length.isdecimal() else 0
        if size > self._most:
            self._refusal = _too_large(size, self._most)
            if size > requests.MOST_DRAINED_BYTES:
                raise self._refusal
            return
        try:
            await self.admit()
        except Problem as refusal:
            self._refusal = refusal

    @override
    def data_received(self, chunk: bytes) -> Awaitable[None] | None:
        """Collect the body, up to the limit."""
        if self._refusal is None:
            self._body += chunk
            if len(self._body) > self._most:
                self._refusal = _too_large(len(self._body), self._most)
        return None

    async def run(self, **_: str) -> None:
        """Run the operation and send its answer."""
        if self._refusal is not None:
            raise self._refusal
        operation = self.operation
        if operation is None or operation.run is None:
            raise web.HTTPError(405)
        body = bytes(self._body)
        if operation.templated:
            body = await self.services.templates.expand(body, self.visitor.person)
        call = self.read_call(operation, body)
        if operation.in_audit_log and operation.method == "GET":
            await self.note(call)  # who reads without a trace cannot be found later
        answer = await operation.run(call)
        await self._note_change(operation, call, answer)
        if isinstance(answer, StreamedResponse):
            self.sender = StreamSender(self, answer)
            watching = asyncio.ensure_future(self._watch_caller(answer, self.sender))
            try:
                await self.sender.send(self.services.deps.timing.first_piece)
            finally:
                watching.cancel()
        else:
            self._send(answer)

    async def _note_change(
        self, operation: Operation, call: Call, answer: Response | StreamedResponse
    ) -> None:
        """Record a change of no object of the ledger; those are recorded there."""
        actor = self.actor
        refused = isinstance(answer, Response) and answer.status >= 400
        if actor is None or actor.recorded or operation.method == "GET" or refused:
            return
        if getattr(call.query, "dry_run", False) or getattr(call.query, "offset", 0):
            return
        try:
            await self.note(call)
        except StoreError:
            log.exception("%s is not in the audit log", operation.id)

    async def _watch_caller(self, stream: StreamedResponse, sender: StreamSender) -> None:
        """End the stream of a caller whose token was revoked, or who left the project."""
        principal, deps = self.visitor.principal, self.services.deps
        if principal is None or stream.looks_up:
            return
        watcher, project = Watcher(deps, principal, self.token), self.path.get("project")
        while await watcher.still_there():
            if project is not None and not watcher.principal.sees(project):
                break
            await asyncio.sleep(max(deps.timing.verify, LEAST_PAUSE_SECONDS))
        sender.break_off()

    get = head = post = put = patch = delete = options = run

    def _send(self, answer: Response) -> None:
        self.set_status(answer.status)
        for name, value in answer.headers.items():
            self.set_header(name, value)
        if answer.status != 204:
            content = answer.content
            self.set_header("Content-Type", answer.media)
            self.write(content if isinstance(content, bytes) else to_json(content))

    @override
    def on_connection_close(self) -> None:
        """Stop streaming: the client has closed the connection."""
        super().on_connection_close()
        if self.sender is not None:
            self.sender.stop()


class NothingHere(OperationHandler):
    """Answers 404 for paths without an operation."""

    @override
    async def admit(self) -> None:
        """Refuse every caller with 404."""
        raise problems.Missing(Code.NOT_FOUND, "There is nothing at this address")


def _given(content: Any) -> dict[str, Any]:
    """The fields of a query or body for the audit log, without those that were not given."""
    if isinstance(content, bytes):
        return {"bytes": len(content)}
    found = msgspec.to_builtins(content)
    if not isinstance(found, dict):
        return {}
    return {str(key): value for key, value in found.items() if value not in (None, "", [], False)}


def _too_large(size: int, most: int) -> problems.TooLarge:
    return problems.TooLarge(
        Code.BODY_TOO_LARGE,
        f"The body has {size:,} bytes or more; {most:,} are the most",
    )
