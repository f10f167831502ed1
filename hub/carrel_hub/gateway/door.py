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
from carrel_hub.gateway.people import HubUnavailable, People, Person
from carrel_hub.gateway.settings import Settings
from carrel_hub.gateway.signin import SignIn
from carrel_hub.gateway.table import MAIN, Place, Table

HUB_RETRY_SECONDS: Final = 5


@dataclass(frozen=True, slots=True)
class Visit:
    """A request that may be passed on.

    Attributes:
        route_name: of the route; ``prefix`` is its path without a slash at the end.
        rest: path and query below the prefix, as sent.
        trusted: its pages may run with the Hub's origin.
    """

    person: Person
    place: Place
    route: Route
    route_name: str
    prefix: str
    rest: str
    trusted: bool


class Door:
    """See the module."""

    def __init__(self, settings: Settings, people: People, sign_in: SignIn, table: Table) -> None:
        self._settings, self._people = settings, people
        self._sign_in, self._table = sign_in, table

    async def person(self, request: Request) -> Person | web.Response:
        """Who asks, or what to answer to somebody unknown."""
        scheme, _, token = request.headers.get("Authorization", "").strip().partition(" ")
        by_header = scheme.lower() in ("token", "bearer") and bool(token.strip())
        token = token.strip() if by_header else self._sign_in.token(request)
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
            return self._stranger(request, by_header=by_header)
        if not person.may_enter(self._settings.service):
            return refusal(
                request,
                403,
                "missing_scope",
                "This token has no right to use endpoints: it needs the scope "
                f"access:services!service={self._settings.service}.",
            )
        websocket = wants_websocket(request)
        if not by_header and not safety.came_from_us(request, websocket=websocket):
            return refusal(
                request,
                403,
                "cross_site",
                "A page of another site asked for this. Programs send a token as "
                "`Authorization: Bearer ...` instead of the browser's cookie.",
            )
        return person

    def _stranger(self, request: Request, *, by_header: bool) -> web.Response:
        if wants_page(request) and not by_header:
            return self._sign_in.begin(request.raw_path)
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
        path, question, query = request.raw_path.partition("?")
        parts = path.removeprefix(self._settings.prefix).split("/", 2)
        if len(parts) < 2 or not parts[0] or not parts[1]:
            return refusal(
                request, 404, "not_found", f"Addresses are {self._settings.prefix}project/name/."
            )
        person = await self.person(request)
        if isinstance(person, web.Response):
            return person
        project, name = unquote(parts[0]), unquote(parts[1])
        place = self._table.find(project, name)
        rest = parts[2] if len(parts) > 2 else ""
        route_name, behind = MAIN, f"/{rest}"
        prefix = f"{self._settings.prefix}{parts[0]}/{parts[1]}"
        if rest.startswith("~"):
            head, slash, tail = rest.partition("/")
            route_name, behind, prefix = unquote(head[1:]), slash + tail, f"{prefix}/{head}"
        bare = len(parts) == 2 or not behind
        found = self._allowed(request, person, place, route_name, f"{project}/{name}")
        if isinstance(found, web.Response):
            return found
        if bare and wants_page(request):
            return _moved(f"{prefix}/{question}{query}")
        place, route_name = found
        rest = (behind or "/") + question + query
        return Visit(
            person=person,
            place=place,
            route=place.routes[route_name],
            route_name=route_name,
            prefix=prefix,
            rest=rest,
            trusted=trusted(place, person, self._settings.trust),
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


def allowed(place: Place, route: Route, person: Person) -> bool:
    """Whether a person may use a route; its user always may, a task of another project never."""
    if person.within is not None and person.within != place.project:
        return False
    if person.is_user and person.name == place.user:
        return True
    if route.access == "everyone":
        return True
    return route.access == "project" and place.project in person.projects


def trusted(place: Place, person: Person, trust: str) -> bool:
    """Whether a place's pages may run with the Hub's origin in this person's browser."""
    own = person.is_user and person.name == place.user
    shared = trust == "project" and place.project in person.projects
    return own or place.trusted or shared or trust == "everyone"


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
