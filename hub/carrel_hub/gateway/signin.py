"""Browsers sign in with the Hub's OAuth; what they get back is kept in a cookie.

On the Hub's origin the cookie is signed and bound to the gateway's path. To the origin of a route
it never goes: there the browser hands in a pass that the gateway issued on the Hub's origin, which
is good for that origin, for the sign-in that was begun there, once, and for a minute. What it gets
for it is a cookie of that host alone, encrypted, so that it is worth nothing elsewhere.

Scripts cannot read these cookies, other sites cannot send them along (``SameSite=Lax``), and they
never leave the gateway towards a target. Signing out of the Hub revokes the token in them.
"""

import asyncio
import base64
import hashlib
import secrets
from typing import Final
from urllib.parse import urlencode

import aiohttp
import msgspec
from aiohttp import web
from cachetools import TTLCache
from cryptography.fernet import Fernet, InvalidToken
from tornado.web import create_signed_value, decode_signed_value

from carrel_hub.front.origins import LABEL, Origins
from carrel_hub.gateway.identity import ANSWER_SECONDS, HubUnavailable
from carrel_hub.gateway.settings import GatewaySettings

COOKIE: Final = "carrel-gateway"
STATE_COOKIE: Final = "carrel-gateway-state"
STATE_SECONDS: Final = 600
COOKIE_DAYS: Final = 14.0
PASS_SECONDS: Final = 60
MOST_PASSES: Final = 10_000
ENTER: Final = "/.carrel/enter"
"""The path at which a pass is handed in, on the origin of a route; never forwarded."""
_DAY_SECONDS: Final = 86_400


class Pass(msgspec.Struct, frozen=True):
    """Lets one browser in at one origin. ``state`` is what it began the sign-in with."""

    token: str
    label: str
    state: str


class _OriginCookie(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of the cookie of an origin; a pass, which has a state too, is refused as one."""

    token: str
    label: str


class GatewaySignIn:
    """The way of a browser to the Hub and back. ``secret`` signs cookies."""

    def __init__(
        self, settings: GatewaySettings, session: aiohttp.ClientSession, secret: bytes
    ) -> None:
        self._settings, self._session, self._secret = settings, session, secret
        self._callback = f"{settings.prefix}oauth_callback"
        self.origins = Origins(settings.public_url)
        key = hashlib.sha256(b"carrel gateway origins" + secret).digest()
        self._sealed = Fernet(base64.urlsafe_b64encode(key))
        self._used: TTLCache[str, bool] = TTLCache(MOST_PASSES, 2 * PASS_SECONDS)

    def token(self, request: web.BaseRequest) -> str:
        """The token in the browser's cookie; empty when there is none that we made for it."""
        of_route = self.origins.label_in(request.headers.get("Host", ""))
        if of_route:
            return self._token_at(request, of_route)
        value = request.cookies.get(COOKIE, "")
        found = decode_signed_value(self._secret, COOKIE, value, max_age_days=COOKIE_DAYS)
        return found.decode() if found else ""

    def _token_at(self, request: web.BaseRequest, of_route: str) -> str:
        value = request.cookies.get(self._own_name(COOKIE), "")
        try:
            text = self._sealed.decrypt(value, ttl=int(COOKIE_DAYS * _DAY_SECONDS))
            cookie = msgspec.json.decode(text, type=_OriginCookie)
        except (InvalidToken, msgspec.MsgspecError, ValueError):
            return ""
        return cookie.token if cookie.label == of_route else ""

    def begin(self, request: web.BaseRequest) -> web.Response:
        """Send the browser to sign in; it comes back to what it asked for."""
        of_route = self.origins.label_in(request.headers.get("Host", ""))
        state = secrets.token_urlsafe(16)
        if of_route:
            query = urlencode({"at": of_route, "state": state})
            to = f"{self.origins.public_url}{self._settings.prefix}enter?{query}"
        else:
            query = urlencode(
                {
                    "client_id": self._settings.client_id,
                    "redirect_uri": self._callback,
                    "response_type": "code",
                    "state": state,
                }
            )
            to = f"{self._settings.hub_prefix}api/oauth2/authorize?{query}"
        response = web.Response(status=302, headers={"Location": to})
        signed = create_signed_value(self._secret, STATE_COOKIE, f"{state} {request.raw_path}")
        self._set(response, STATE_COOKIE, signed.decode(), STATE_SECONDS, at_origin=bool(of_route))
        return response

    async def finish(self, request: web.BaseRequest) -> web.Response:
        """The browser comes back with a code, which becomes the token in its cookie."""
        state, code = request.query.get("state", ""), request.query.get("code", "")
        back_to = self._return_path(request.cookies.get(STATE_COOKIE, ""), state)
        if not back_to or not code:
            return _not_begun_here()
        token = await self._token_for(code)
        response = web.Response(status=302, headers={"Location": back_to})
        value = create_signed_value(self._secret, COOKIE, token).decode()
        self._set(response, COOKIE, value, None)
        response.del_cookie(STATE_COOKIE, path=self._settings.prefix)
        return response

    def issue_pass(self, request: web.BaseRequest, token: str) -> web.Response:
        """Send a browser that signed in on the Hub's origin back to its route, with a pass."""
        of_route, state = request.query.get("at", ""), request.query.get("state", "")
        host = f"{of_route}.{self.origins.netloc}"
        if not state or not LABEL.fullmatch(of_route) or not self.origins.label_in(host):
            return _not_begun_here()
        made = self._seal(Pass(token=token, label=of_route, state=state))
        to = f"{self.origins.at(of_route)}{ENTER}?{urlencode({'pass': made})}"
        return web.Response(status=302, headers={"Location": to, "Referrer-Policy": "no-referrer"})

    def enter(self, request: web.BaseRequest) -> web.Response:
        """Exchange a pass for the cookie of this host, on the origin of a route."""
        of_route = self.origins.label_in(request.headers.get("Host", ""))
        given = request.query.get("pass", "")
        try:
            text = self._sealed.decrypt(given, ttl=PASS_SECONDS)
            found = msgspec.json.decode(text, type=Pass)
        except (InvalidToken, msgspec.MsgspecError, ValueError):
            return _not_begun_here()
        begun = request.cookies.get(self._own_name(STATE_COOKIE), "")
        back_to = self._return_path(begun, found.state)
        if not back_to or found.label != of_route or given in self._used:
            return _not_begun_here()
        self._used[given] = True
        response = web.Response(status=302, headers={"Location": back_to})
        value = self._seal(_OriginCookie(token=found.token, label=of_route))
        self._set(response, COOKIE, value, None, at_origin=True)
        self._set(response, STATE_COOKIE, "", 0, at_origin=True)
        return response

    def _seal(self, content: Pass | _OriginCookie) -> str:
        return self._sealed.encrypt(msgspec.json.encode(content)).decode()

    def _return_path(self, cookie: str, given: str) -> str:
        """The path to which the sign-in that began with the state ``given`` returns.

        Empty when ``cookie``, the state cookie of this browser, is of another one or of none.
        """
        asked = decode_signed_value(self._secret, STATE_COOKIE, cookie, max_age_days=1)
        state, _, back_to = (asked or b"").decode().partition(" ")
        if not state or not secrets.compare_digest(state.encode(), given.encode()):
            return ""
        # Two slashes would begin another host.
        return "/" + back_to.lstrip("/")

    async def _token_for(self, code: str) -> str:
        """Raises ``HubUnavailable``."""
        form = {
            "client_id": self._settings.client_id,
            "client_secret": self._settings.token,
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._callback,
        }
        url = f"{self._settings.hub_api_url}/oauth2/token"
        try:
            async with (
                asyncio.timeout(ANSWER_SECONDS),
                self._session.post(url, data=form) as answer,
            ):
                if answer.status != 200:
                    raise HubUnavailable(f"The Hub refused the code with {answer.status}")
                return str((await answer.json())["access_token"])
        except (aiohttp.ClientError, TimeoutError, ValueError, KeyError) as error:
            raise HubUnavailable("The Hub does not answer") from error

    def _own_name(self, name: str) -> str:
        """The name of a cookie on the origin of a route; over TLS one that no other host sets."""
        return f"__Host-{name}" if self.origins.secure else name

    def _set(
        self,
        response: web.Response,
        name: str,
        value: str,
        seconds: int | None,
        *,
        at_origin: bool = False,
    ) -> None:
        response.set_cookie(
            self._own_name(name) if at_origin else name,
            value,
            max_age=seconds,
            path="/" if at_origin else self._settings.prefix,
            httponly=True,
            secure=self.origins.secure,
            samesite="Lax",
        )


def _not_begun_here() -> web.Response:
    return web.Response(
        status=400, text="This sign-in was not begun here; open the address again.\n"
    )
