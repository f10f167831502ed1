"""The Hub as the console meets it: OAuth with PKCE, and who a token belongs to.

``who`` is signed in at the Hub's own login page, so to speak: the next authorisation is theirs.
"""

import base64
import hashlib
from urllib.parse import urlencode

from aiohttp import web

CLIENT_ID = "service-console"
SERVICE_TOKEN = "console-own-token"
ACCESS = "access:services!service=console"


class FakeHub:
    """The Hub's endpoints. ``scopes`` are those of tokens it knows; ``origin`` is the console's."""

    def __init__(self) -> None:
        self.who = "ada"
        self.origin = ""
        self.scopes = [ACCESS]
        self.revoked: set[str] = set()
        self._challenges: dict[str, str] = {}
        self.app = web.Application()
        self.app.router.add_get("/hub/api/oauth2/authorize", self._authorize)
        self.app.router.add_post("/hub/api/oauth2/token", self._token)
        self.app.router.add_get("/hub/api/user", self._user)

    async def _authorize(self, request: web.Request) -> web.Response:
        query = request.query
        assert query["client_id"] == CLIENT_ID
        assert query["code_challenge_method"] == "S256"
        self._challenges[self.who] = query["code_challenge"]
        back = urlencode({"code": self.who, "state": query["state"]})
        raise web.HTTPFound(f"{self.origin}{query['redirect_uri']}?{back}")

    async def _token(self, request: web.Request) -> web.Response:
        form = await request.post()
        assert form["client_secret"] == SERVICE_TOKEN
        user = str(form["code"])
        digest = hashlib.sha256(str(form["code_verifier"]).encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        if challenge != self._challenges.get(user):
            return web.json_response({"error": "invalid_grant"}, status=400)
        return web.json_response({"access_token": f"token-of-{user}", "token_type": "Bearer"})

    async def _user(self, request: web.Request) -> web.Response:
        _, _, token = request.headers.get("Authorization", "").partition(" ")
        if not token.startswith("token-of-") or token in self.revoked:
            return web.json_response({"status": 403, "message": "Forbidden"}, status=403)
        name = token.removeprefix("token-of-")
        return web.json_response(
            {"name": name, "kind": "user", "admin": False, "groups": [], "scopes": self.scopes}
        )
