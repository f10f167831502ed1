"""The Hub's answer to a Traefik on another machine that asks for its routes.

The file lies on the Hub's volume, so a Hub that has just started tells all that it told before.
"""

import hmac
import json
from pathlib import Path
from typing import Any, Final

from tornado import web
from typing_extensions import override

PROVIDED_PATH: Final = "/carrel/routes"


class ProvidedRoutes(web.RequestHandler):
    """``GET /hub/carrel/routes`` with the proxy's key. No page of the Hub: nobody signs in here."""

    _file: Path
    _token: str

    @override
    def initialize(self, file: Path, token: str) -> None:
        """Set the file of the routes, and the key that gives access."""
        self._file, self._token = file, token

    @override
    def get(self) -> None:
        """Answer with all routes, or with 503 while the Hub has none yet."""
        said = self.request.headers.get("Authorization", "")
        if not hmac.compare_digest(said.encode(), f"token {self._token}".encode()):
            raise web.HTTPError(403)
        try:
            found: dict[str, Any] = json.loads(self._file.read_text())
        except (OSError, ValueError):
            raise web.HTTPError(503) from None
        if not found.pop("jupyterhub", {}).get("routes"):
            raise web.HTTPError(503)
        self.set_header("Cache-Control", "no-store")
        self.write(found)
