"""The fake scheduler's endpoints: thin, over ``SchedulerState``."""

import asyncio
import json
from collections.abc import Callable

from aiohttp import WSMsgType, web
from typing_extensions import override

from carrel.testing.assets import AssetRoutes, ServiceAccountRoutes
from carrel.testing.documents import DocumentRoutes
from carrel.testing.files import ArtifactRoutes
from carrel.testing.people import PeopleRoutes
from carrel.testing.platform import PlatformRoutes
from carrel.testing.projects import ProjectRoutes
from carrel.testing.routes import Handler, Route, Routes
from carrel.testing.state import (
    AT_REST,
    Json,
    Refusal,
    SchedulerState,
    best_of,
    trials_of,
)
from carrel_schema import code
from carrel_schema.governance.roles import ROLES, RoleName

PREFIX = "/services/carrel/api/v1"
WORKLOAD = "/workloads/{project}/{name}"


class Server(Routes):
    """Routes and handlers. ``failures`` holds statuses (0: hang up) for the next requests."""

    def __init__(self, state: SchedulerState) -> None:
        super().__init__(state)
        self.failures: list[int] = []
        self.requests: list[tuple[str, str]] = []
        self.activities: list[Json] = []
        self.app = web.Application(middlewares=[self._guard], client_max_size=code.MOST_LIST_BYTES)
        add = self.app.router.add_route
        parts = (
            *(ArtifactRoutes(state), DocumentRoutes(state), PeopleRoutes(state)),
            *(AssetRoutes(state), ServiceAccountRoutes(state), PlatformRoutes(state)),
            ProjectRoutes(state),
        )
        more = [route for part in parts for route in part.routes()]
        for method, path, handler in (*self.routes(), *more):
            add(method, PREFIX + path, handler)

    @override
    def routes(self) -> list[Route]:
        """The endpoints of work, nodes and use."""
        return [
            ("GET", "/whoami", self._whoami),
            ("POST", "/workloads", self._create),
            ("POST", "/workloads:batch", self._create_many),
            ("GET", "/workloads", self._list_workloads),
            ("GET", WORKLOAD, self._get_workload),
            ("DELETE", WORKLOAD, self._delete),
            ("POST", WORKLOAD + "/suspend", self._suspend),
            ("POST", WORKLOAD + "/resume", self._resume),
            ("POST", WORKLOAD + "/extend", self._extend),
            ("POST", WORKLOAD + "/claim", self._claim),
            ("POST", WORKLOAD + "/rerun", self._rerun),
            ("GET", WORKLOAD + "/logs", self._logs),
            ("GET", WORKLOAD + "/history", self._history),
            ("GET", WORKLOAD + "/remedies", self._remedies),
            ("GET", WORKLOAD + "/metrics", self._metrics),
            ("GET", WORKLOAD + "/events", self._events),
            ("POST", WORKLOAD + "/reports", self._report),
            ("GET", WORKLOAD + "/result", self._result),
            ("PUT", WORKLOAD + "/result", self._hand_back),
            ("GET", WORKLOAD + "/exec", self._exec),
            ("GET", WORKLOAD + "/run", self._run),
            ("POST", "/projects/{project}/code", self._upload_code),
            ("PUT", "/projects/{project}/code/chunks/{digest}", self._upload_chunk),
            ("GET", "/experiments/{project}/{name}/trials", self._trials),
            ("POST", "/experiments/{project}/{name}/best", self._best),
            ("GET", "/events", self._events),
            ("GET", "/nodes", self._nodes),
            ("GET", "/nodes/{node}", self._node),
            ("GET", "/faults", self._faults),
            ("GET", "/queue", self._queue),
            ("GET", "/usage", self._usage),
            ("GET", "/usage-table", self._usage_table),
            ("GET", "/gpu-use", self._gpu_use),
            ("POST", "/workspaces/activity", self._activity),
        ]

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Planned failures first, then refusals as problems."""
        self.requests.append((request.method, request.path.removeprefix(PREFIX)))
        if self.failures:
            status = self.failures.pop(0)
            if status == 0 and request.transport is not None:
                request.transport.abort()
            if status == 503:
                body = {"code": "identity_unavailable", "title": "The Hub does not answer."}
                return web.json_response(
                    body, status=status, content_type="application/problem+json"
                )
            return web.Response(status=status or 500, text="not now")
        try:
            self._admit(request)
            return await handler(request)
        except ConnectionResetError:
            return web.Response()  # the reader left, as readers do; this goes nowhere
        except Refusal as refusal:
            return web.json_response(
                refusal.body, status=refusal.status, content_type="application/problem+json"
            )

    def _admit(self, request: web.Request) -> None:
        """Refuse a request without a known token, or for a project that its user may not see."""
        self._user(request)
        project = request.match_info.get("project")
        if project is not None and project not in self._visible(request):
            raise Refusal(404, "not_found", f"There is no project `{project}`.")

    def _key(self, request: web.Request) -> tuple[str, str]:
        return request.match_info["project"], request.match_info["name"]

    async def _whoami(self, request: web.Request) -> web.Response:
        mine = self._visible(request)
        default = mine[0] if len(mine) == 1 else None
        admin = self._user(request) in self._state.admins
        role: RoleName = "administrator" if admin else "researcher"
        scopes = ["platform"] if admin else [f"project/{one}" for one in mine]
        found = {
            "user": self._user(request),
            "admin": admin,
            "permissions": sorted(ROLES[role].permissions),
            "roles": [{"role": role, "scope": one, "source": "member"} for one in scopes],
        }
        return web.json_response(found | {"projects": mine, "default_project": default})

    async def _create(self, request: web.Request) -> web.Response:
        body: Json = await request.json()
        if body.get("project") not in self._visible(request):
            raise Refusal(
                403, "forbidden", f"You are not a member of `{body.get('project')}`.", "project"
            )
        user = body.get("user") or self._user(request)
        if request.query.get("dry_run") == "true":
            return web.json_response(self._forecast(body, user))
        key = request.headers.get("Idempotency-Key", "")
        if key and key in self._state.keys:
            return web.json_response(self._state.find(*self._state.keys[key]), status=201)
        workload = self._state.create(body, user)
        if key:
            self._state.keys[key] = (workload["project"], workload["name"])
        return web.json_response(workload, status=201)

    def _forecast(self, body: Json, user: str) -> Json:
        draft = self._state.draft(body, body.get("name") or "job-1", user)
        reason = {"token": "Starting", "cls": "starting", "sentence": "It would start now."}
        return {"workload": draft, "forecast": reason}

    async def _create_many(self, request: web.Request) -> web.Response:
        items: list[Json] = (await request.json())["items"]
        foreign = {item["project"] for item in items} - set(self._visible(request))
        if foreign:
            raise Refusal(403, "not_a_member", f"You are not in the project `{min(foreign)}`.")
        answers = [self._create_one(item, self._user(request)) for item in items]
        return web.json_response({"items": answers})

    def _create_one(self, item: Json, user: str) -> Json:
        answer = {"project": item["project"], "name": item["name"]}
        try:
            made = self._state.create(item, user)
        except Refusal as refusal:
            return answer | {"status": refusal.status, "problem": refusal.body}
        return answer | {"status": 201, "uid": made["uid"]}

    async def _list_workloads(self, request: web.Request) -> web.Response:
        query, visible = request.query, self._visible(request)
        if "project" in query and query["project"] not in visible:
            raise Refusal(403, "forbidden", f"You are not a member of `{query['project']}`.")
        limit, after = int(query.get("limit", "100")), query.get("after", "")
        labels = [label.partition("=")[::2] for label in query.getall("label", [])]
        phases = query.getall("phase", [])
        shown = bool(query.get("parts") == "true" or "kind" in query or labels)
        found = [
            workload
            for (project, name), workload in sorted(self._state.workloads.items())
            if project in visible
            and project == query.get("project", project)
            and query.get("search", "") in f"{name} {workload['spec']['user']}"
            and workload["spec"]["user"] == query.get("user", workload["spec"]["user"])
            and workload["spec"]["kind"] == query.get("kind", workload["spec"]["kind"])
            and (shown or workload["spec"]["kind"] not in ("trial", "replica"))
            and (not phases or workload["status"]["phase"] in phases)
            and all(workload["labels"].get(key) == value for key, value in labels)
        ]
        if query.get("order") == "newest":
            found.sort(key=lambda workload: workload["created_at"])
            found.reverse()
        keys = [f"{workload['project']}/{workload['name']}" for workload in found]
        found = found[keys.index(after) + 1 :] if after in keys else found
        page = found[:limit]
        more = f"{page[-1]['project']}/{page[-1]['name']}" if len(found) > limit else None
        return web.json_response({"items": page, "next": more})

    async def _get_workload(self, request: web.Request) -> web.Response:
        return web.json_response(self._state.find(*self._key(request)))

    async def _delete(self, request: web.Request) -> web.Response:
        removed = self._state.remove(*self._key(request))
        if request.query.get("children") == "true":
            for key, one in list(self._state.workloads.items()):
                if removed["uid"] in one["spec"].get("ancestors", ()):
                    self._state.remove(*key)
        return web.json_response(removed, status=202)

    async def _suspend(self, request: web.Request) -> web.Response:
        reason = {"token": "Suspended", "sentence": "Suspended by its owner."}
        status = {"phase": "stopped", "reason": reason, "tasks": []}
        return web.json_response(self._state.change(*self._key(request), status))

    async def _resume(self, request: web.Request) -> web.Response:
        if self._state.find(*self._key(request))["status"]["phase"] != "stopped":
            raise Refusal(409, "not_stopped", "It is not suspended, so there is nothing to resume.")
        status = {"phase": "pending", "reason": None}
        return web.json_response(self._state.change(*self._key(request), status))

    async def _extend(self, request: web.Request) -> web.Response:
        limits = self._state.find(*self._key(request))["status"].get("limits") or {}
        if not limits.get("may_extend"):
            raise Refusal(409, "no_extension", "This project allows no extension.")
        stops_at = (limits["stops_at"] or self._state.now()) + 3600.0
        later = limits | {"stops_at": stops_at, "warn_at": stops_at - 600.0}
        self._state.change(*self._key(request), {"limits": later})
        return web.json_response(later)

    async def _claim(self, request: web.Request) -> web.Response:
        body = await request.json()
        workload = self._state.find(*self._key(request))
        self._state.secrets[self._key(request)] = body.pop("secret_environment", {})
        workload["spec"] |= body | {"hold_for_claim": False}
        return web.json_response(workload)

    async def _rerun(self, request: web.Request) -> web.Response:
        old, body = self._state.find(*self._key(request)), await request.json()
        if old["spec"]["user"] != self._user(request):
            raise Refusal(403, "not_the_owner", f"Only {old['spec']['user']} runs it again.")
        own = ("user", "files", "suspend", "delete", "owner", "part")
        asked = {key: value for key, value in old["spec"].items() if key not in own}
        prefix = (
            {} if "name" in body["changes"] else {"name_prefix": old["name"].rstrip("-0123456789")}
        )
        again = {**asked, "project": old["project"], **prefix, **body["changes"]}
        again = {key: value for key, value in again.items() if value is not None}
        if request.query.get("dry_run") == "true":
            return web.json_response(self._forecast(again, self._user(request)))
        return web.json_response(self._state.create(again, self._user(request)), status=201)

    async def _logs(self, request: web.Request) -> web.StreamResponse:
        key, query, state = self._key(request), request.query, self._state
        state.find(*key)
        follow = query.get("follow") == "true"
        response = web.StreamResponse(headers={"Content-Type": "text/plain; charset=utf-8"})
        await response.prepare(request)
        since = float(query.get("since", "0"))
        count = len([line for line in state.logs[key] if line[0] >= since])
        sent = len(state.logs[key]) - min(count, int(query.get("tail", count)))
        while True:
            for at, text in state.logs[key][sent:]:
                stamp = f"{at:.3f} " if query.get("timestamps") == "true" else ""
                for name in self._whose(key, query.get("index", "0")):
                    await response.write(f"{name}{stamp}{text}\n".encode())
            sent = len(state.logs[key])
            workload = state.workloads.get(key)
            if not follow or workload is None or workload["status"]["phase"] in AT_REST:
                return response
            async with state.changed:
                await state.changed.wait()

    def _whose(self, key: tuple[str, str], index: str) -> list[str]:
        """The prefix of a line of the log: every task prints the same."""
        if index != "all":
            return [""]
        tasks = self._state.find(*key)["spec"].get("tasks", 1)
        return [f"{key[1]}-{number} | " for number in range(tasks)]

    async def _history(self, request: web.Request) -> web.Response:
        self._state.find(*self._key(request))
        return web.json_response(self._state.history[self._key(request)])

    async def _remedies(self, request: web.Request) -> web.Response:
        key = self._key(request)
        phase = self._state.find(*key)["status"]["phase"]
        if phase != "pending":
            raise Refusal(409, "not_pending", f"It does not wait: its phase is `{phase}`")
        found = self._state.remedies.get(key, [])
        if found is None:
            raise Refusal(429, "too_many_requests", "Enough answers were made just now.")
        return web.json_response({"items": found})

    async def _metrics(self, request: web.Request) -> web.Response:
        curves = self._state.metrics.get(self._key(request), {})
        names = request.query.getall("name", list(curves))
        return web.json_response({name: curves.get(name, []) for name in names})

    async def _trials(self, request: web.Request) -> web.Response:
        return web.json_response(trials_of(self._state, *self._key(request)))

    async def _best(self, request: web.Request) -> web.Response:
        kind = (await request.json()).get("kind", "training")
        return web.json_response(best_of(self._state, *self._key(request), kind))

    async def _events(self, request: web.Request) -> web.StreamResponse:
        state, visible, match = self._state, self._visible(request), request.match_info
        project = match.get("project") or request.query.get("project")
        wanted: asyncio.Queue[tuple[int, str, Json] | None] = asyncio.Queue()
        if project not in (None, *visible):
            raise Refusal(403, "not_a_member", f"You are not in the project `{project}`.")

        def mine(workload: Json) -> bool:
            return (
                workload["project"] in visible
                and project in (None, workload["project"])
                and match.get("name") in (None, workload["name"])
                and request.query.get("kind") in (None, workload["spec"]["kind"])
            )

        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        seen = int(request.headers.get("Last-Event-ID", "0"))
        if seen:
            start = [message for message in state.past if message[0] > seen]
        else:
            present = [w for w in state.workloads.values() if w["status"]["phase"] not in AT_REST]
            start = [(w["resource_version"], "workload", w) for w in present]
        for message in start:
            wanted.put_nowait(message)
        state.listeners.add(wanted)
        try:
            await self._send_events(response, wanted, mine)
        finally:
            state.listeners.discard(wanted)
        return response

    async def _send_events(
        self,
        response: web.StreamResponse,
        wanted: asyncio.Queue[tuple[int, str, Json] | None],
        mine: Callable[[Json], bool],
    ) -> None:
        while (event := await wanted.get()) is not None:
            version, kind, workload = event
            if mine(workload):
                text = f"event: {kind}\nid: {version}\ndata: {json.dumps(workload)}\n\n"
                await response.write(text.encode())

    async def _report(self, request: web.Request) -> web.Response:
        self._state.take_report(*self._key(request), await request.json())
        return web.Response(status=204)

    async def _result(self, request: web.Request) -> web.Response:
        self._state.find(*self._key(request))
        content = self._state.results.get(self._key(request))
        if content is None:
            raise Refusal(404, "no_result", "The job has handed no result back.")
        return web.Response(body=content, content_type="application/octet-stream")

    async def _hand_back(self, request: web.Request) -> web.Response:
        self._state.find(*self._key(request))
        self._state.results[self._key(request)] = await request.read()
        return web.Response(status=204)

    async def _upload_code(self, request: web.Request) -> web.Response:
        content = await request.read()
        try:
            folder, known = code.decode(content), self._state.chunks
        except code.UnusableFolder as error:
            raise Refusal(422, "invalid", str(error), error.field) from error
        missing = [digest for digest in folder.chunks if digest not in known]
        digest = code.digest_of(folder.encode())
        if not missing:
            self._state.folders[digest] = folder
        return web.json_response({"digest": digest, "missing": missing})

    async def _upload_chunk(self, request: web.Request) -> web.Response:
        content, digest = await request.read(), request.match_info["digest"]
        if code.digest_of(content) != digest:
            raise Refusal(422, "invalid", "This is not the content of that digest.", "digest")
        self._state.chunks[digest] = content
        return web.Response(status=204)

    async def _exec(self, request: web.Request) -> web.StreamResponse:
        """A "shell" that repeats what is typed and ends on ``exit``."""
        if self._state.find(*self._key(request))["status"]["phase"] != "running":
            raise Refusal(409, "not_running", "It is not running.")
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        command = " ".join(request.query.getall("command", ["shell"]))
        await socket.send_json(["stdout", f"{command}\r\n"])
        async for message in socket:
            match json.loads(message.data) if message.type is WSMsgType.TEXT else []:
                case ["stdin", str(text)] if text.strip() in ("exit", "\x04"):
                    await socket.send_json(["exit", 0])
                    break
                case ["stdin", str(text)]:
                    await socket.send_json(["stdout", text])
                case ["set_size", *size]:
                    await socket.send_json(["stdout", f"size {size}\r\n"])
        await socket.close()
        return socket

    async def _run(self, request: web.Request) -> web.StreamResponse:
        """A "command" that repeats its input, tells its name as an error, and ends with 3."""
        if self._state.find(*self._key(request))["status"]["phase"] != "running":
            raise Refusal(409, "not_running", "It is not running.")
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.send_bytes(b"\x02" + " ".join(request.query.getall("command")).encode())
        async for message in socket:
            if message.type is not WSMsgType.BINARY:
                break
            await socket.send_bytes(b"\x01" + message.data)
        await socket.send_json(["exit", 3])
        await socket.close()
        return socket

    async def _nodes(self, _: web.Request) -> web.Response:
        return web.json_response(
            {"items": [self._state.with_colors(one) for one in self._state.nodes]}
        )

    async def _node(self, request: web.Request) -> web.Response:
        name = request.match_info["node"]
        for node in self._state.nodes:
            if node["name"] == name:
                return web.json_response(self._state.with_colors(node))
        raise Refusal(404, "not_found", f"There is no node `{name}`.")

    async def _faults(self, request: web.Request) -> web.Response:
        self._admin(request)
        return web.json_response(self._state.faults)

    async def _queue(self, request: web.Request) -> web.Response:
        waiting = [w for w in self._state.workloads.values() if w["status"]["phase"] == "pending"]
        items = [
            {
                "position": position,
                "uid": w["uid"],
                "project": w["project"],
                "kind": w["spec"]["kind"],
                "resources": {"gpus": w["spec"].get("gpus", 0)},
                "tasks": w["spec"].get("tasks", 1),
                "waits_since": w["status"]["queued_at"],
                "reason": w["status"].get("reason"),
                "color": self._state.color(w["project"]),
            }
            | (
                {"name": w["name"], "user": w["spec"]["user"]}
                if w["project"] in self._visible(request)
                else {"name": "", "user": ""}
            )
            for position, w in enumerate(waiting, 1)
        ]
        begin, limit = int(request.query.get("after", "0")), request.query.get("limit")
        items = items[begin : None if limit is None else begin + int(limit)]
        return web.json_response({"items": items})

    async def _usage(self, request: web.Request) -> web.Response:
        by = request.query.get("by", "project")
        items = [{"key": name} for name in self._visible(request)] if by == "project" else []
        return web.json_response({"items": items, **self._state.usage_facts})

    async def _usage_table(self, request: web.Request) -> web.Response:
        """The keys of the lines alone, whatever the format."""
        lines = [request.query.get("by", "project")]
        lines += [one["key"] for one in self._state.usage_facts.get("items", [])]
        return web.Response(body="\n".join(lines).encode())

    async def _gpu_use(self, request: web.Request) -> web.Response:
        asked, known = request.query.getall("uid", []), self._state.gpu_use
        return web.json_response({"items": {uid: known.get(uid, []) for uid in asked}})

    async def _activity(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.activities.append(body)
        for workload in self._state.workloads.values():
            spec = workload["spec"]
            named = spec.get("server_name", "") == body.get("server_name", "")
            if spec["kind"] == "workspace" and spec["user"] == self._user(request) and named:
                return web.json_response(workload["status"].get("limits") or {})
        raise Refusal(404, "not_found", "There is no such workspace.")
