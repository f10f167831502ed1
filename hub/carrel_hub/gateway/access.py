"""Access control of the gateway: from a request to a principal, a workload and its route.

A token in ``Authorization`` counts before the browser's cookie. Whoever is not in a project learns
nothing of what is there: what does not exist and what is not theirs are refused alike. Every
refusal and redirect is raised as ``EarlyResponse``.
"""

from dataclasses import dataclass
from typing import NoReturn
from urllib.parse import unquote

from aiohttp.web import BaseRequest, Response

from carrel_hub.front.origins import MAIN
from carrel_hub.front.rules import host_of
from carrel_hub.gateway.headers import from_same_origin, is_framed, wants_websocket
from carrel_hub.gateway.identity import GatewayPrincipal, TokenReviewer
from carrel_hub.gateway.responses import EarlyResponse, redirect, refuse, wants_page
from carrel_hub.gateway.routing import RoutedWorkload, RoutingTable
from carrel_hub.gateway.settings import GatewaySettings
from carrel_hub.gateway.signin import GatewaySignIn
from carrel_schema.sections import Route


@dataclass(frozen=True, slots=True)
class RouteMatch:
    """The route that a request may use.

    Attributes:
        prefix: path of the route without a slash at the end.
        rest: path and query below the prefix, as sent.
        own_origin: its pages share their origin with no other program.
        framed_by: the only other origin whose pages may show it in a frame; empty: not said.
    """

    principal: GatewayPrincipal
    workload: RoutedWorkload
    route: Route
    route_name: str
    prefix: str
    rest: str
    own_origin: bool
    framed_by: str = ""


class AccessControl:
    """Authenticates and authorises requests."""

    def __init__(
        self,
        settings: GatewaySettings,
        tokens: TokenReviewer,
        sign_in: GatewaySignIn,
        table: RoutingTable,
    ) -> None:
        self._settings, self._tokens, self._sign_in, self._table = settings, tokens, sign_in, table
        self._origins = sign_in.origins

    async def principal(
        self, request: BaseRequest, *, framed: bool = False, uses_endpoints: bool = True
    ) -> GatewayPrincipal:
        """The principal of the request. Raises ``EarlyResponse`` and ``HubUnavailable``.

        Args:
            request: of the visitor.
            framed: it may be the content of a frame; the caller checks of what.
            uses_endpoints: the token needs the right to use endpoints; the caller checks another
                right where it does not.
        """
        given = _bearer_token(request)
        token = given or self._sign_in.token(request)
        principal = await self._tokens.principal(token) if token else None
        if principal is None:
            if wants_page(request) and not given:
                raise EarlyResponse(self._sign_in.begin(request))
            unknown = "The Hub does not know this token (expired or revoked?)."
            missing = "Send a JupyterHub token as `Authorization: Bearer ...`."
            refuse(request, 401, "unauthenticated", unknown if given else missing)
        if uses_endpoints and not principal.may_use(self._settings.service):
            refuse(
                request,
                403,
                "missing_scope",
                "This token has no right to use endpoints: it needs the scope "
                f"access:services!service={self._settings.service}.",
            )
        alike = framed or from_same_origin(request, websocket=wants_websocket(request))
        if not given and not alike:
            _refuse_other_sites(request)
        return principal

    async def issue_pass(self, request: BaseRequest) -> Response:
        """Let a browser in at the origin of a route, with the sign-in on the Hub's origin."""
        await self.principal(request, framed=is_framed(request))
        token = self._sign_in.token(request)
        return self._sign_in.issue_pass(request, token) if token else self._sign_in.begin(request)

    async def match(self, request: BaseRequest) -> RouteMatch:
        """The route that the request may use. Raises ``EarlyResponse`` and ``HubUnavailable``."""
        of_route = self._origins.label_in(request.headers.get("Host", ""))
        if of_route:
            return await self._at_origin(request, of_route)
        return await self._by_path(request)

    async def _at_origin(self, request: BaseRequest, of_route: str) -> RouteMatch:
        """Match a request to the origin of a route; the gateway's own path may be left out."""
        if "Service-Worker" in request.headers:
            refuse(
                request,
                403,
                "no_service_workers",
                "Service workers are not served: they would outlive the program at this address.",
            )
        path, question, query = request.raw_path.partition("?")
        if not path.startswith("/"):
            refuse(request, 400, "bad_address", "The path of an address begins with /.")
        framed = is_framed(request)
        principal = await self.principal(request, framed=framed)
        known, route_name = self._table.at_origin(of_route)
        shown = f"{known.project}/{known.name}" if known is not None else ""
        workload, route_name = _authorize(request, principal, known, route_name, shown)
        board = workload.kind == "tensorboard"
        if framed and not board:
            _refuse_other_sites(request)
        route = workload.routes[route_name]
        own = f"{self._settings.prefix}{shown}"
        if workload.routes.get(MAIN) is not route:
            own += f"/~{route_name}"
        inside = path == own or path.startswith(f"{own}/")
        behind = (path.removeprefix(own) if inside else path) or "/"
        if route.keep_prefix and not inside and wants_page(request):
            redirect(f"{own}{behind}{question}{query}")
        return RouteMatch(
            principal=principal,
            workload=workload,
            route=route,
            route_name=route_name,
            prefix=own if inside or route.keep_prefix else "",
            rest=behind + question + query,
            own_origin=True,
            framed_by=self._servers_of(principal) if board else "",
        )

    def _servers_of(self, principal: GatewayPrincipal) -> str:
        """The origin of a visitor's own servers."""
        host = host_of(principal.name, self._origins.netloc, "user")
        return f"{self._origins.scheme}://{host}"

    async def _by_path(self, request: BaseRequest) -> RouteMatch:
        """Match a request to the Hub's origin: of programs, and of browsers without another."""
        path, question, query = request.raw_path.partition("?")
        parts = path.removeprefix(self._settings.prefix).split("/", 2)
        if len(parts) < 2 or not parts[0] or not parts[1]:
            addresses = f"Addresses are {self._settings.prefix}project/name/."
            refuse(request, 404, "not_found", addresses)
        project, name = unquote(parts[0]), unquote(parts[1])
        rest = parts[2] if len(parts) > 2 else ""
        route_name, behind = MAIN, f"/{rest}"
        prefix = f"{self._settings.prefix}{parts[0]}/{parts[1]}"
        if rest.startswith("~"):
            head, slash, tail = rest.partition("/")
            route_name, behind, prefix = unquote(head[1:]), slash + tail, f"{prefix}/{head}"
        if self._origins.public_url and wants_page(request) and not _bearer_token(request):
            origin = self._origins.of(project, name, route_name)
            redirect(f"{origin}{behind or '/'}{question}{query}")
        principal = await self.principal(request)
        known = self._table.find(project, name)
        workload, route_name = _authorize(
            request, principal, known, route_name, f"{project}/{name}"
        )
        if (len(parts) == 2 or not behind) and wants_page(request):
            redirect(f"{prefix}/{question}{query}")  # relative links of a page need the slash
        if workload.kind == "tensorboard" and wants_page(request):
            refuse(
                request,
                403,
                "no_own_origin",
                "TensorBoard's page needs an origin of its own, which this installation does not "
                "give to programs (see `carrel up --domain`).",
            )
        return RouteMatch(
            principal=principal,
            workload=workload,
            route=workload.routes[route_name],
            route_name=route_name,
            prefix=prefix,
            rest=(behind or "/") + question + query,
            own_origin=False,
        )


def _refuse_other_sites(request: BaseRequest) -> NoReturn:
    refuse(
        request,
        403,
        "cross_site",
        "A page of another site asked for this. Programs send a token as "
        "`Authorization: Bearer ...` instead of the browser's cookie.",
    )


def allowed(workload: RoutedWorkload, route: Route, principal: GatewayPrincipal) -> bool:
    """Whether a principal may use a route; its user always may, a task of another project never."""
    if principal.within is not None and principal.within != workload.project:
        return False
    if principal.is_user and principal.name == workload.user:
        return True
    if route.access == "everyone":
        return True
    return route.access == "project" and workload.project in principal.projects


def _authorize(
    request: BaseRequest,
    principal: GatewayPrincipal,
    workload: RoutedWorkload | None,
    route_name: str,
    shown: str,
) -> tuple[RoutedWorkload, str]:
    """The workload and the name of its route, if the principal may use it."""
    if workload is not None and route_name == MAIN and MAIN not in workload.routes:
        route_name = next(iter(workload.routes))
    exists = workload is not None and route_name in workload.routes
    if not exists and shown.partition("/")[0] in principal.projects:
        refuse(
            request,
            404,
            "not_found",
            f"Nothing of {shown} can be reached here: it does not exist or has no such route.",
        )
    if (
        workload is None
        or not exists
        or not allowed(workload, workload.routes[route_name], principal)
    ):
        refuse(
            request,
            403,
            "not_shared",
            f"There is nothing here that is shared with {principal.name}. Its owner can open it "
            "to the project or to everyone.",
        )
    return workload, route_name


def _bearer_token(request: BaseRequest) -> str:
    """The token in a program's header; empty without one."""
    scheme, _, token = request.headers.get("Authorization", "").strip().partition(" ")
    return token.strip() if scheme.lower() in ("token", "bearer") else ""
