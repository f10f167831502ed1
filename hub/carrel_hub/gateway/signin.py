"""Browsers sign in with the Hub's OAuth; what they get back is kept in a signed cookie.

The cookie is bound to the gateway's path, scripts cannot read it, and other sites cannot send it
along (``SameSite=Lax``). It never leaves the gateway towards a target. Signing out of the Hub
revokes the token in it.
"""

import asyncio
import secrets
from typing import Final
from urllib.parse import urlencode

import aiohttp
from aiohttp import web
from tornado.web import create_signed_value, decode_signed_value

from carrel_hub.gateway.headers import Request
from carrel_hub.gateway.people import ANSWER_SECONDS, HubUnavailable
from carrel_hub.gateway.settings import Settings

COOKIE: Final = "carrel-gateway"
STATE_COOKIE: Final = "carrel-gateway-state"
STATE_SECONDS: Final = 600
COOKIE_DAYS: Final = 14.0


class SignIn:
    """The way of a browser to the Hub and back. ``secret`` signs cookies."""

    def __init__(self, settings: Settings, session: aiohttp.ClientSession, secret: bytes) -> None:
        self._settings, self._session, self._secret = settings, session, secret
        self._callback = f"{settings.prefix}oauth_callback"

    def token(self, request: Request) -> str:
        """The token in the browser's cookie; empty when there is none that we signed."""
        value = request.cookies.get(COOKIE, "")
        found = decode_signed_value(self._secret, COOKIE, value, max_age_days=COOKIE_DAYS)
        return found.decode() if found else ""

    def begin(self, back_to: str) -> web.Response:
        """Send the browser to the Hub; it comes back to ``back_to``, a path of ours."""
        state = secrets.token_urlsafe(16)
        query = urlencode(
            {
                "client_id": self._settings.client_id,
                "redirect_uri": self._callback,
                "response_type": "code",
                "state": state,
            }
        )
        response = web.Response(status=302)
        response.headers["Location"] = f"{self._settings.hub_prefix}api/oauth2/authorize?{query}"
        signed = create_signed_value(self._secret, STATE_COOKIE, f"{state} {back_to}")
        self._set(response, STATE_COOKIE, signed.decode(), STATE_SECONDS)
        return response

    async def finish(self, request: Request) -> web.Response:
        """The browser comes back with a code, which becomes the token in its cookie."""
        asked = decode_signed_value(
            self._secret, STATE_COOKIE, request.cookies.get(STATE_COOKIE, ""), max_age_days=1
        )
        state, _, back_to = (asked or b"").decode().partition(" ")
        code = request.query.get("code", "")
        given = request.query.get("state", "")
        if not state or not code or not secrets.compare_digest(state, given):
            return web.Response(
                status=400, text="This sign-in was not begun here; open the address again.\n"
            )
        token = await self._token_for(code)
        response = web.Response(status=302)
        response.headers["Location"] = back_to
        value = create_signed_value(self._secret, COOKIE, token).decode()
        self._set(response, COOKIE, value, None)
        response.del_cookie(STATE_COOKIE, path=self._settings.prefix)
        return response

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
                    raise HubUnavailable(f"the Hub refused the code with {answer.status}")
                return str((await answer.json())["access_token"])
        except (aiohttp.ClientError, TimeoutError, ValueError, KeyError) as error:
            raise HubUnavailable("the Hub does not answer") from error

    def _set(self, response: web.Response, name: str, value: str, seconds: int | None) -> None:
        response.set_cookie(
            name, value, max_age=seconds, path=self._settings.prefix, httponly=True, samesite="Lax"
        )
