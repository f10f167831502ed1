"""The Hub's handlers that no configuration changes: signing out, and what strangers are told.

Whatever the authenticator is, sign-ins, sign-outs and new or deleted users are reported to the
audit log here.

Any authenticator can be extended by them, see ``ending_sessions``.
"""

import asyncio
import inspect
import json
from importlib.metadata import entry_points
from typing import Any, Final

import jupyterhub
from jupyterhub import orm
from jupyterhub.apihandlers.base import APIHandler
from jupyterhub.auth import Authenticator
from jupyterhub.handlers.login import LogoutHandler
from tornado.web import HTTPError
from traitlets import Unicode
from traitlets.utils.importstring import import_item
from typing_extensions import override

from carrel_hub.accounts import disabled
from carrel_hub.accounts.audit_reports import AuditReports, origin_of
from carrel_hub.accounts.sessions import end_browser_sessions
from carrel_hub.accounts.store import AccountStore
from carrel_hub.accounts.token_reports import HANDLERS
from carrel_spawner.connections import shared_client

_LOGOUT: Final = "/logout"
REASONS: Final = {403: "not_allowed", 429: "too_many_attempts"}
"""The reasons of refusals in the audit log, by their status."""
DISABLED: Final = "Your account is disabled. Ask an admin."
HUB_VERSION: Final = jupyterhub.__version__.partition(".")[0]
"""The part of the Hub's version that is shown to people who are not signed in."""


class Root(APIHandler):
    """``GET /hub/api/``, for everybody: that a Hub answers; ``/hub/api/info`` tells admins more."""

    @override
    def set_default_headers(self) -> None:
        """Allow any origin, as the Hub's own handler does."""
        self.set_header("Access-Control-Allow-Origin", "*")
        base: Any = super()
        base.set_default_headers()

    @override
    def check_xsrf_cookie(self) -> None:
        """Skip the check: the request changes nothing."""

    @override
    def get(self) -> None:
        """Answer with the first number of the Hub's version."""
        base: Any = super()
        base.finish(json.dumps({"version": HUB_VERSION}))


class AuditedAuthenticator(Authenticator):
    """The base of all authenticators: the audit log, disabled people, Carrel's handlers.

    It comes before the authenticator itself, see ``ending_sessions``.
    """

    audit_url = Unicode(help="The scheduler's service.").tag(config=True)
    audit_token = Unicode(help="A token of the Hub's own there.").tag(config=True)

    def __init__(self, **kwargs: Any) -> None:
        base: Any = super()
        base.__init__(**kwargs)
        journal: AccountStore | None = getattr(self, "accounts", None)
        self.reports = AuditReports(
            lambda: shared_client(self.audit_url, self.audit_token), journal=journal
        )
        self._begun: list[asyncio.Task[None]] = []

    @override
    async def get_authenticated_user(self, handler: Any, data: Any) -> Any:
        """Authenticate as the Hub does, and report the result to the audit log."""
        base: Any = super()
        try:
            found = await base.get_authenticated_user(handler, data)
        except HTTPError as error:
            self._refused(handler, data, REASONS.get(error.status_code, "unavailable"))
            raise
        if found is None:
            self._refused(handler, data, "wrong_password")
        else:
            name = found["name"]
            self._check_enabled(handler, name)
            self.reports.add("sign-in", name, user=name, **origin_of(self, handler))
        return found

    def _check_enabled(self, handler: Any, name: str) -> None:
        row = disabled.row_of(handler.db, name)
        if disabled.is_disabled(row):
            self._refused(handler, {"username": name}, "disabled")
            raise HTTPError(403, DISABLED)

    @override
    async def refresh_user(self, user: Any, handler: Any = None, **kwargs: Any) -> Any:
        """Refuse disabled users: their sessions and tokens are not valid."""
        if disabled.is_disabled(user.orm_user):
            return False
        base: Any = super()
        return await base.refresh_user(user, handler, **kwargs)

    def _refused(self, handler: Any, data: Any, reason: str) -> None:
        typed = data.get("username", "") if isinstance(data, dict) else ""
        untyped: Any = self
        name = untyped.normalize_username(typed) if typed else ""
        known = bool(name) and handler.db.query(orm.User).filter_by(name=name).count() > 0
        origin = {"address": "", "agent": ""} | origin_of(self, handler)
        self.reports.refused(name if known else "", reason, **origin)

    @override
    def add_user(self, user: Any) -> None:
        """Called for every user at the Hub's start, with its row, and for each new one."""
        base: Any = super()
        base.add_user(user)
        if hasattr(user, "orm_user"):
            self.reports.add("create", user.name)

    @override
    async def delete_user(self, user: Any) -> None:
        """Called when a user is deleted."""
        base: Any = super()
        told = base.delete_user(user)
        if inspect.isawaitable(told):
            await told
        self.reports.add("delete", user.name)

    @override
    def get_handlers(self, app: Any) -> list[Any]:
        """Replace the handlers of ``/logout`` and ``/api/``."""
        base: Any = super()
        theirs = base.get_handlers(app)
        self._trusted = app.trusted_downstream_ips
        if self.audit_token:
            self._begun.append(asyncio.create_task(self.reports.run()))
        logout = next((one[1] for one in theirs if one[0] == _LOGOUT), LogoutHandler)
        ours = [(_LOGOUT, _ending(logout)), ("/api/?", Root), *HANDLERS]
        return [*ours, *(one for one in theirs if one[0] != _LOGOUT)]


def ending_sessions(authenticator: type[Authenticator]) -> type[Authenticator]:
    """The authenticator, with a sign-out that ends the person's sessions in all browsers."""
    return type(authenticator.__name__, (AuditedAuthenticator, authenticator), {})


def authenticator_named(name: str) -> type[Authenticator]:
    """The class that ``JupyterHub.authenticator_class`` would find: an entry point, or a path.

    Raises ``ImportError`` when there is none, saying what would be right.
    """
    for one in entry_points(group="jupyterhub.authenticators", name=name.lower()):
        found: type[Authenticator] = one.load()
        return found
    try:
        imported: type[Authenticator] = import_item(name)
    except ImportError as error:
        known = sorted(one.name for one in entry_points(group="jupyterhub.authenticators"))
        raise ImportError(
            f"authenticator is {name!r}; it should be one of {', '.join(known)}, or the dotted "
            f"path of a class that is installed ({error})"
        ) from error
    return imported


def _ending(logout: type[LogoutHandler]) -> type[LogoutHandler]:
    class SignOut(logout):  # type: ignore[misc, valid-type]
        """Sign out in all browsers: a copy of the Hub's cookie is worth nothing afterwards."""

        @override
        async def default_handle_logout(self) -> None:
            user = self.current_user
            base: Any = super()
            await base.default_handle_logout()
            reports: AuditReports | None = getattr(self.authenticator, "reports", None)
            if user is not None and reports is not None:
                origin = origin_of(self.authenticator, self)
                reports.add("sign-out", user.name, user=user.name, **origin)
            if user is not None and user.kind == "user":
                end_browser_sessions(user.orm_user)

    return SignOut
