"""The fake scheduler's documents and audit log: kept and shown, applied to nothing.

``effective`` is what tests let it answer for all work, by the path of a field.
"""

import msgspec
from aiohttp import web
from typing_extensions import override

from carrel.testing.routes import Route, Routes
from carrel.testing.state import Json, Refusal
from carrel_schema.governance.alerts import ABOUT
from carrel_schema.governance.roles import ROLES, roles_with


class DocumentRoutes(Routes):
    """Documents in scopes; only admins write those of others."""

    @override
    def routes(self) -> list[Route]:
        """The routes of this part of the API."""
        one = "/{sort:policies|templates|secrets}/{name}"
        return [
            ("GET", "/{sort:policies|templates|secrets}", self._list),
            ("GET", one, self._read),
            ("PUT", one, self._put),
            ("DELETE", one, self._delete),
            ("GET", "/catalogue", self._catalogue),
            ("GET", "/alerts", self._alerts),
            ("GET", "/alert-rules", self._alert_rules),
            ("PUT", "/alert-rules/{name}", self._put_alert_rule),
            ("GET", "/{sort:silences|notification-channels}", self._sorted),
            ("POST", "/silences", self._silence),
            ("PUT", "/notification-channels/{name}", self._put_channel),
            ("POST", "/notification-channels/{name}/test", self._test_channel),
            ("DELETE", "/{sort:silences|notification-channels}/{name}", self._forget),
            ("GET", "/roles", self._roles),
            ("GET", "/permission", self._permission),
            ("GET", "/access-rules", self._rules),
            ("POST", "/access-rules", self._grant),
            ("DELETE", "/access-rules/{rule}", self._revoke),
            ("GET", "/effective-policy", self._effective),
            ("GET", "/usage-series", self._facts),
            ("GET", "/samples", self._samples),
            ("GET", "/node-groups", self._node_groups),
            ("POST", "/node-groups", self._put_node_group),
            ("PUT", "/node-groups/{name}", self._put_node_group),
            ("DELETE", "/node-groups/{name}", self._delete_node_group),
            ("GET", "/budgets", self._budgets),
            ("PUT", "/budget", self._put_budget),
            ("DELETE", "/budget", self._delete_budget),
            ("GET", "/audit", self._audit),
            ("GET", "/audit/verification", self._verified),
            ("GET", "/audit/settings", self._audit_settings),
            ("PUT", "/audit/settings", self._audit_settings),
        ]

    def _seen(self, request: web.Request) -> list[tuple[str, str, str]]:
        user, state = self._user(request), self._state
        return [
            key
            for key in sorted(state.documents)
            if key[0] == request.match_info["sort"]
            and (
                user in state.admins
                or key[1] in ("platform", f"user/{user}")
                or user in state.members.get(key[1].removeprefix("project/"), ())
            )
        ]

    def _key(self, request: web.Request) -> tuple[str, str, str]:
        return request.match_info["sort"], request.query["scope"], request.match_info["name"]

    async def _list(self, request: web.Request) -> web.Response:
        found = [self._state.documents[key] for key in self._seen(request)]
        return web.json_response({"items": found})

    async def _read(self, request: web.Request) -> web.Response:
        key = self._key(request)
        if key not in self._seen(request):
            raise Refusal(404, "not_found", f"There is no `{key[2]}` that you can see")
        return web.json_response(self._state.documents[key])

    async def _catalogue(self, _request: web.Request) -> web.Response:
        """Answer the catalogue that a test has set."""
        return web.json_response({"items": self._state.catalogue})

    async def _audit(self, request: web.Request) -> web.Response:
        """Entries that tests put there, the newest first, filtered by who, verb and kind alone."""
        if self._user(request) not in self._state.admins:
            raise Refusal(403, "missing_scope", "Only administrators read this")
        names = [name for name in ("user", "verb", "kind", "outcome") if name in request.query]
        found = [
            one
            for one in reversed(self._state.audit)
            if all(one.get(name, "") == request.query[name] for name in names)
        ]
        first, limit = int(request.query.get("after", 0)), int(request.query["limit"])
        more = str(first + limit) if len(found) > first + limit else ""
        return web.json_response({"items": found[first : first + limit], "next": more})

    async def _audit_settings(self, request: web.Request) -> web.Response:
        if request.method == "PUT":
            body = await request.json()
            if body["syslog"].startswith("file:"):
                raise Refusal(422, "wrong_form", "syslog is wrong", "syslog")
            self._state.audit_settings = body
        return web.json_response(self._state.audit_settings)

    async def _verified(self, _request: web.Request) -> web.Response:
        head = {"seq": len(self._state.audit)}
        return web.json_response({"ok": True, "entries": head["seq"], "head": head})

    async def _put(self, request: web.Request) -> web.Response:
        key, body, user = self._key(request), await request.json(), self._user(request)
        if user not in self._state.admins and key[1] != f"user/{user}":
            raise Refusal(403, "missing_scope", "Only administrators write this")
        if "gpuz" in body.get("rules", {}):
            raise Refusal(422, "unknown_field", "rules.gpuz: expected a field", "rules.gpuz")
        before = self._state.documents.get(key, {"version": 0})
        version = before["version"] + 1
        if key[0] == "secrets":
            kept = before.get("keys", []) if body.pop("keep_others", False) else []
            body["keys"] = sorted({*kept, *body.pop("data")})
        if body.pop("expected_version", before["version"]) != before["version"]:
            raise Refusal(409, "conflict", "It was changed meanwhile")
        made: Json = body | {
            "name": key[2],
            "scope": key[1],
            "version": version,
            "changed_by": user,
            "changed_at": self._state.now(),
        }
        if request.query.get("dry_run") != "true":
            self._state.documents[key] = made
        return web.json_response(made)

    async def _delete(self, request: web.Request) -> web.Response:
        self._state.documents.pop(self._key(request))
        return web.Response(status=204)

    async def _alerts(self, _: web.Request) -> web.Response:
        return web.json_response({"items": self._state.alerts})

    async def _alert_rules(self, _: web.Request) -> web.Response:
        found = [
            {
                **msgspec.structs.asdict(about.default),
                "name": name,
                "description": about.description,
                "unit": about.unit,
                "action": about.action,
                **self._state.alerting.get(("alert-rules", name), {}),
            }
            for name, about in ABOUT.items()
        ]
        return web.json_response({"items": found})

    async def _put_alert_rule(self, request: web.Request) -> web.Response:
        name, body = request.match_info["name"], await request.json()
        self._state.alerting["alert-rules", name] = body
        return web.json_response(body | {"name": name})

    async def _sorted(self, request: web.Request) -> web.Response:
        sort = request.match_info["sort"]
        found = [one for (kind, _), one in self._state.alerting.items() if kind == sort]
        return web.json_response({"items": found})

    async def _silence(self, request: web.Request) -> web.Response:
        made = await request.json() | {"name": "s1", "created_by": self._user(request)}
        self._state.alerting["silences", "s1"] = made
        return web.json_response(made, status=201)

    async def _put_channel(self, request: web.Request) -> web.Response:
        name, body = request.match_info["name"], await request.json()
        if body["kind"] == "mail" and not body["to"]:
            raise Refusal(422, "missing_field", "addresses to send to", "to")
        self._state.alerting["notification-channels", name] = body | {"name": name}
        return web.json_response(body | {"name": name})

    async def _test_channel(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if "broken" in name:
            raise Refusal(409, "not_delivered", f"`{name}`: it answered 500")
        return web.json_response(self._state.alerting["notification-channels", name])

    async def _forget(self, request: web.Request) -> web.Response:
        del self._state.alerting[request.match_info["sort"], request.match_info["name"]]
        return web.Response(status=204)

    async def _roles(self, _: web.Request) -> web.Response:
        found = [
            {
                "name": name,
                "description": role.description,
                "permissions": sorted(role.permissions),
                "scopes": list(role.levels),
            }
            for name, role in ROLES.items()
        ]
        return web.json_response({"items": found})

    async def _permission(self, request: web.Request) -> web.Response:
        allowed = self._user(request) in self._state.admins
        roles = roles_with(request.query["permission"])
        return web.json_response({**request.query, "allowed": allowed, "roles": roles})

    async def _rules(self, request: web.Request) -> web.Response:
        user, rules = self._user(request), self._state.access_rules
        seen = [one for one in rules if user in self._state.admins or one["subject"] == user]
        return web.json_response({"items": seen})

    async def _grant(self, request: web.Request) -> web.Response:
        body, user = await request.json(), self._user(request)
        if user not in self._state.admins:
            raise Refusal(403, "missing_permission", "This needs `access-rules:update`")
        if body["role"] == "administrator" and body["scope"] != "platform":
            raise Refusal(422, "wrong_form", "`platform`", "scope")
        number = len(self._state.access_rules) + 1
        made = body | {"id": f"rule-{number}", "created_by": user, "created_at": self._state.now()}
        self._state.access_rules.append(made)
        return web.json_response(made, status=201)

    async def _revoke(self, request: web.Request) -> web.Response:
        rules = self._state.access_rules
        rules[:] = [one for one in rules if one["id"] != request.match_info["rule"]]
        return web.Response(status=204)

    async def _node_groups(self, _: web.Request) -> web.Response:
        found = self._state.node_groups
        return web.json_response({"items": [found[name] for name in sorted(found)]})

    async def _put_node_group(self, request: web.Request) -> web.Response:
        body = await request.json()
        name = request.match_info.get("name") or body["name"]
        if not body.get("match_labels") and not body.get("node_names"):
            expected = "at least one label, or a name in `node_names`"
            error = {"field": "match_labels", "code": "missing_field", "expected": expected}
            problem = {"status": 422, "code": "missing_field", "detail": expected}
            return web.json_response(problem | {"errors": [error]}, status=422)
        known = self._state.node_groups.get(name, {"version": "0"})
        body.pop("expected_version", None)
        version = str(int(known["version"]) + 1)
        made = {**body, "name": name, "defined": True, "version": version}
        self._state.node_groups[name] = made
        return web.json_response(made)

    async def _delete_node_group(self, request: web.Request) -> web.Response:
        del self._state.node_groups[request.match_info["name"]]
        return web.Response(status=204)

    async def _budgets(self, _: web.Request) -> web.Response:
        return web.json_response({"items": list(self._state.budgets.values())})

    async def _put_budget(self, request: web.Request) -> web.Response:
        made = await request.json() | {"scope": request.query["scope"], "used_gpu_hours": 12.5}
        made |= {"used_cost": 30.0, "currency": "EUR"}
        self._state.budgets[request.query["scope"]] = made
        return web.json_response(made)

    async def _delete_budget(self, request: web.Request) -> web.Response:
        del self._state.budgets[request.query["scope"]]
        return web.Response(status=204)

    async def _samples(self, request: web.Request) -> web.Response:
        return web.json_response(self._state.samples | {"subject": request.query["subject"]})

    async def _facts(self, _: web.Request) -> web.Response:
        return web.json_response(self._state.usage_facts)

    async def _effective(self, request: web.Request) -> web.Response:
        project = request.query["project"]
        rules = self._state.effective_rules | self._state.project_rules.get(project, {})
        return web.json_response({"project": project, "rules": rules})
