"""Who comes in: from a request to a person, an endpoint and one of its routes, or a refusal.

A token in ``Authorization`` counts before the browser's cookie. Whoever is not in a project learns
nothing of what is there: what does not exist and what is not theirs are refused alike.
"""

from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

from aiohttp import web

from carrel.models.sections import Route
from carrel_hub.gateway import safety
from carrel_hub.gateway.answers import refusal, wants_page
from carrel_hub.gateway.headers import Request, wants_websocket
from carrel_hub.gateway.origins import MAIN
from carrel_hub.gateway.people import HubUnavailable, People, Person
from carrel_hub.gateway.settings import Settings
from carrel_hub.gateway.signin import SignIn
from carrel_hub.gateway.table import Place, Table

HUB_RETRY_SECONDS: Final = 5


@dataclass(frozen=True, slots=True)
class Visit:
    """A request that may be passed on.

    Attributes:
        route_name: of the route; ``prefix`` is its path without a slash at the end.
        rest: path and query below the prefix, as sent.
        own_origin: its pages share their origin with no other program.
    """

    person: Person
    place: Place
    route: Route
    route_name: str
    prefix: str
    rest: str
    own_origin: bool


class Door:
    """See the module."""

    def __init__(self, settings: Settings, people: People, sign_in: SignIn, table: Table) -> None:
        self._settings, self._people = settings, people
        self._origins = sign_in.origins
        self._sign_in, self._table = sign_in, table

    async def person(self, request: Request) -> Person | web.Response:
        """Who asks, or what to answer to somebody unknown."""
        given = by_header(request)
        token = given or self._sign_in.token(request)
        try:
            person = await self._people.person(token) if token else None
        except HubUnavailable:
            return refusal(
                request,
                503,
                "hub_unavailable",
                "JupyterHub does not answer, so nobody can be identified; try again in a moment.",
                again=HUB_RETRY_SECONDS,
            )
        if person is None:
            return self._stranger(request, by_header=bool(given))
        if not person.may_enter(self._settings.service):
            return refusal(
                request,
                403,
                "missing_scope",
                "This token has no right to use endpoints: it needs the scope "
                f"access:services!service={self._settings.service}.",
            )
        websocket = wants_websocket(request)
        if not given and not safety.came_from_us(request, websocket=websocket):
            return refusal(
                request,
                403,
                "cross_site",
                "A page of another site asked for this. Programs send a token as "
                "`Authorization: Bearer ...` instead of the browser's cookie.",
            )
        return person

    async def hand_over(self, request: Request) -> web.Response:
        """Let a browser in at the origin of a route, with the sign-in on the Hub's origin."""
        person = await self.person(request)
        if isinstance(person, web.Response):
            return person
        token = self._sign_in.token(request)
        return self._sign_in.hand_over(request, token) if token else self._sign_in.begin(request)

    def _stranger(self, request: Request, *, by_header: bool) -> web.Response:
        if wants_page(request) and not by_header:
            return self._sign_in.begin(request)
        return refusal(
            request,
            401,
            "unauthenticated",
            "The Hub does not know this token (expired or revoked?)."
            if by_header
            else "Send a JupyterHub token as `Authorization: Bearer ...`.",
        )

    async def visit(self, request: Request) -> Visit | web.Response:
        """What the request may reach, or why not."""
        of_route = self._origins.label_in(request.headers.get("Host", ""))
        if of_route:
            return await self._at_origin(request, of_route)
        return await self._by_path(request)

    async def _at_origin(self, request: Request, of_route: str) -> Visit | web.Response:
        """On the origin of a route; the gateway's path before the own one may be left out."""
        if "Service-Worker" in request.headers:
            return refusal(
                request,
                403,
                "no_service_workers",
                "Service workers are not served: they would outlive the program at this address.",
            )
        path, question, query = request.raw_path.partition("?")
        if not path.startswith("/"):
            return refusal(request, 400, "bad_address", "The path of an address begins with /.")
        person = await self.person(request)
        if isinstance(person, web.Response):
            return person
        place, route_name = self._table.at_origin(of_route)
        shown = f"{place.project}/{place.name}" if place is not None else ""
        found = self._allowed(request, person, place, route_name, shown)
        if isinstance(found, web.Response):
            return found
        place, route_name = found
        route = place.routes[route_name]
        own = f"{self._settings.prefix}{shown}"
        if place.routes.get(MAIN) is not route:
            own += f"/~{route_name}"
        inside = path == own or path.startswith(f"{own}/")
        behind = (path.removeprefix(own) if inside else path) or "/"
        if route.keep_prefix and not inside and wants_page(request):
            return _moved(f"{own}{behind}{question}{query}")
        return Visit(
            person=person,
            place=place,
            route=route,
            route_name=route_name,
            prefix=own if inside or route.keep_prefix else "",
            rest=behind + question + query,
            own_origin=True,
        )

    async def _by_path(self, request: Request) -> Visit | web.Response:
        """On the Hub's origin: for programs, and for browsers where there is no other one."""
        path, question, query = request.raw_path.partition("?")
        parts = path.removeprefix(self._settings.prefix).split("/", 2)
        if len(parts) < 2 or not parts[0] or not parts[1]:
            return refusal(
                request, 404, "not_found", f"Addresses are {self._settings.prefix}project/name/."
            )
        project, name = unquote(parts[0]), unquote(parts[1])
        rest = parts[2] if len(parts) > 2 else ""
        route_name, behind = MAIN, f"/{rest}"
        prefix = f"{self._settings.prefix}{parts[0]}/{parts[1]}"
        if rest.startswith("~"):
            head, slash, tail = rest.partition("/")
            route_name, behind, prefix = unquote(head[1:]), slash + tail, f"{prefix}/{head}"
        bare = len(parts) == 2 or not behind
        if self._origins.public_url and wants_page(request) and not by_header(request):
            origin = self._origins.of(project, name, route_name)
            return _moved(f"{origin}{behind or '/'}{question}{query}")
        person = await self.person(request)
        if isinstance(person, web.Response):
            return person
        place = self._table.find(project, name)
        found = self._allowed(request, person, place, route_name, f"{project}/{name}")
        if isinstance(found, web.Response):
            return found
        if bare and wants_page(request):
            return _moved(f"{prefix}/{question}{query}")
        place, route_name = found
        if place.kind == "tensorboard" and wants_page(request):
            return refusal(
                request,
                403,
                "no_own_origin",
                "TensorBoard's page needs an origin of its own, which this installation does not "
                "give to programs (see `carrel up --domain`).",
            )
        rest = (behind or "/") + question + query
        return Visit(
            person=person,
            place=place,
            route=place.routes[route_name],
            route_name=route_name,
            prefix=prefix,
            rest=rest,
            own_origin=False,
        )

    def _allowed(
        self,
        request: Request,
        person: Person,
        place: Place | None,
        route_name: str,
        shown: str,
    ) -> tuple[Place, str] | web.Response:
        project = shown.partition("/")[0]
        if place is not None and route_name == MAIN and MAIN not in place.routes:
            route_name = next(iter(place.routes))
        if place is None or route_name not in place.routes:
            if project in person.projects:
                return refusal(
                    request,
                    404,
                    "not_found",
                    f"Nothing of {shown} can be reached here: it does not exist or has no such "
                    "route.",
                )
            return _not_for(request, person)
        if not allowed(place, place.routes[route_name], person):
            return _not_for(request, person)
        return place, route_name


def by_header(request: Request) -> str:
    """The token that a program sends; empty when it sends none."""
    scheme, _, token = request.headers.get("Authorization", "").strip().partition(" ")
    return token.strip() if scheme.lower() in ("token", "bearer") else ""


def allowed(place: Place, route: Route, person: Person) -> bool:
    """Whether a person may use a route; its user always may, a task of another project never."""
    if person.within is not None and person.within != place.project:
        return False
    if person.is_user and person.name == place.user:
        return True
    if route.access == "everyone":
        return True
    return route.access == "project" and place.project in person.projects


def _not_for(request: Request, person: Person) -> web.Response:
    return refusal(
        request,
        403,
        "not_shared",
        f"There is nothing here that is shared with {person.name}. Its owner can open it to the "
        "project or to everyone.",
    )


def _moved(to: str) -> web.Response:
    """Relative links of a page need the slash."""
    return web.Response(status=302, headers={"Location": to})
