"""A service in the console's place: signs people in by OAuth and tells what their token may do."""

import os
from typing import Any
from urllib.parse import urlsplit

from jupyterhub.services.auth import HubOAuth, HubOAuthCallbackHandler, HubOAuthenticated
from tornado import ioloop, web
from typing_extensions import override


class Token(HubOAuthenticated, web.RequestHandler):
    """The token that the console would call the scheduler with."""

    @web.authenticated
    @override
    async def get(self) -> None:
        auth: Any = self.hub_auth
        self.write({"token": auth.get_token(self)})


def main() -> None:
    """Listen where the Hub expects it."""
    prefix = os.environ["JUPYTERHUB_SERVICE_PREFIX"]
    app = web.Application(
        [(f"{prefix}oauth_callback", HubOAuthCallbackHandler), (f"{prefix}.*", Token)],
        cookie_secret=os.urandom(32),
    )
    HubOAuth.instance()
    app.listen(urlsplit(os.environ["JUPYTERHUB_SERVICE_URL"]).port or 0, address="127.0.0.1")
    ioloop.IOLoop.current().start()


if __name__ == "__main__":
    main()
