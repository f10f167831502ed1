"""Base of every page's handler: sign-in by the Hub, the user's client, safe headers, error pages.

People are signed in with the Hub's OAuth. The token that they get for the console is the one that
asks the scheduler, so rights are decided there and nowhere here. Forms carry the Hub's XSRF token,
whose cookie is bound to this service's path.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from http import HTTPStatus
from typing import Any, Final, cast
from urllib.parse import urlencode

import aiohttp
from jinja2 import Environment
from jupyterhub.services.auth import HubOAuthenticated, UserNotAllowed
from tornado.log import app_log
from tornado.web import HTTPError, RequestHandler
from typing_extensions import override

from carrel.client import AsyncClient
from carrel.errors import ApiError, NotSignedIn, Unreachable
from carrel.models import GpuUsePoint, Workload
from carrel_hub.console.explain import StaleForm, explain
from carrel_hub.console.settings import ConsoleSettings, Urls
from carrel_schema.governance.alerts import AlertOut

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
READ_SECONDS: Final = 3.0
MOST_MEASURED: Final = 100
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True, slots=True)
class PageParameters:
    """The parameters of a page's address that choose what is shown."""

    def address(self, page: str, **more: str) -> str:
        """The address of the page with these parameters; empty ones are left out."""
        chosen = {one.name: getattr(self, one.name) for one in fields(self)} | more
        query = {name: text for name, text in chosen.items() if text}
        return f"{page}?{urlencode(query)}" if query else page


@dataclass(slots=True)
class Console:
    """The dependencies of the handlers.

    Attributes:
        hub_auth: the ``HubOAuth`` of this service (its library has no types).
        session: gives the one HTTP session to the scheduler (opened inside the event loop).
        clock: now, in epoch seconds.
    """

    settings: ConsoleSettings
    urls: Urls
    hub_auth: Any
    templates: Environment
    session: Callable[[], aiohttp.ClientSession]
    clock: Callable[[], float] = time.time

    def client(self, token: str, address: str = "") -> AsyncClient:
        """The scheduler, asked in the name of whoever owns the token, at a browser's address."""
        if not token:
            raise NotSignedIn("You are not signed in.")
        return AsyncClient(
            self.settings.api_url,
            token,
            read_timeout=READ_SECONDS,
            session=self.session(),
            origin={"X-Carrel-Channel": "console", "X-Forwarded-For": address},
        )


@dataclass(frozen=True, slots=True)
class LiveRegions:
    """The regions of a page that are refreshed while it is open.

    Attributes:
        regions: ids of the parts that change.
        every: seconds after which they are read again even when nothing was told.
        events: query of the stream of changes; empty for all that the reader may see.
    """

    regions: tuple[str, ...]
    every: int
    events: str = ""


class SafePage(RequestHandler):
    """Safe headers on every answer, and errors as pages that say what to do."""

    console: Console
    signed_in: dict[str, Any] | None = None

    @override
    def initialize(self, console: Console) -> None:
        """Set the handlers' dependencies."""
        self.console = console
        self.hub_auth = console.hub_auth

    @override
    def set_default_headers(self) -> None:
        """Forbid content from other origins, inline scripts, frames and caches."""
        for name, value in HEADERS.items():
            self.set_header(name, value)

    @override
    def get_current_user(self) -> None:
        """Return no user: pages ask the Hub in ``prepare``, as Tornado's way blocks the loop."""

    @override
    def log_exception(self, kind: Any, error: Any, trace: Any) -> None:
        """Refusals and absences are no faults of the console: one line, no traceback."""
        if isinstance(error, ApiError | NotSignedIn | Unreachable):
            app_log.warning("%s %s: %s", self.request.method, self.request.path, error)
        else:
            super().log_exception(kind, error, trace)

    @override
    def write_error(self, status_code: int, **details: Any) -> None:
        """Write the error page."""
        error = details.get("exc_info", (None, None, None))[1]
        told = explain(error, status_code, self.console.urls)
        self.set_status(told.status, _phrase(told.status))
        self.show("error.html", told=told, retry=self.request.uri)

    def show(self, template: str, **context: Any) -> None:
        """Render a page with what its frame needs."""
        user = self.signed_in
        frame = {
            "user": user["name"] if user else "",
            "section": "",
            "now": self.console.clock(),
            "xsrf": self._xsrf_text() if user else "",
            "live": None,
            "permissions": (),
            "here": self.request.uri,
        }
        self.finish(self.console.templates.get_template(template).render(frame | context))

    def go(self, address: str, status: int = HTTPStatus.FOUND) -> None:
        """Send the browser elsewhere."""
        self.redirect(address, status=status)

    def _xsrf_text(self) -> str:
        token: str | bytes = self.xsrf_token
        return token.decode("ascii") if isinstance(token, bytes) else token


class SignedInPage(HubOAuthenticated, SafePage):
    """A page for people who are signed in; ``client`` asks the scheduler in their name."""

    client: AsyncClient

    @override
    def get_current_user(self) -> None:
        """See ``SafePage``: nobody before ``prepare``."""

    @override
    def check_xsrf_cookie(self) -> None:
        """The Hub's check, with Carrel's error page."""
        try:
            self.console.hub_auth.check_xsrf_cookie(self)
        except HTTPError as error:
            raise StaleForm(HTTPStatus.FORBIDDEN, error.log_message) from error

    @override
    async def prepare(self) -> None:
        """Identify the user by the Hub; redirect browsers without a session to the sign-in page."""
        user = await self.console.hub_auth.get_user(self, sync=False)
        if user is None:
            if self.request.method == "GET" and self._is_navigation():
                self.go(self._sign_in_address())
                return
            raise HTTPError(HTTPStatus.UNAUTHORIZED)
        try:
            self.signed_in = self._admitted(user)
        except UserNotAllowed as error:
            raise HTTPError(
                HTTPStatus.FORBIDDEN, "%s may not use the console", user["name"]
            ) from error
        token = cast("str", self.console.hub_auth.get_token(self) or "")
        self.client = self.console.client(token, self.request.remote_ip or "")

    async def alerts_about(self, subject: str) -> Sequence[AlertOut]:
        """Firing alerts about a subject such as ``project/NAME``."""
        found = await self.client.list_alerts()
        return [one for one in found if one.subject == subject and one.state == "firing"]

    async def show_managed(self, template: str, **context: Any) -> None:
        """Answer with a page of those below Manage, which are offered by what its reader may do."""
        identity = await self.client.whoami()
        self.show(template, permissions=identity.permissions, **context)

    @property
    def user(self) -> str:
        """The name of the signed-in user."""
        return cast("str", self.signed_in["name"]) if self.signed_in else ""

    async def gpu_use(self, work: Sequence[Workload]) -> dict[str, list[GpuUsePoint]]:
        """The GPU use of this work, now and before, by the uid of each workload that holds GPUs."""
        uids = [one.uid for one in work if one.spec.gpus and one.holds_resources]
        return await self.client.gpu_use(uids[:MOST_MEASURED]) if uids else {}

    def typed(self) -> dict[str, str]:
        """The texts of a posted form; what is given several times, one on each line."""
        return {
            name: "\n".join(self.get_body_arguments(name)) for name in self.request.body_arguments
        }

    def see_other(self, address: str) -> None:
        """Redirect to a page after a form, so that reloading does not send the form again."""
        self.go(address, HTTPStatus.SEE_OTHER)

    def _sign_in_address(self) -> str:
        untyped: Any = self
        return cast("str", untyped.get_login_url())

    def _admitted(self, user: dict[str, Any]) -> dict[str, Any]:
        untyped: Any = self
        return cast("dict[str, Any]", untyped.check_hub_user(user))

    def _is_navigation(self) -> bool:
        headers = self.request.headers
        if headers.get("Upgrade", "").lower() == "websocket":
            return False
        return headers.get("Sec-Fetch-Mode", "navigate") == "navigate"


def _phrase(status: int) -> str:
    return HTTPStatus(status).phrase if status in set(HTTPStatus) else "Error"
