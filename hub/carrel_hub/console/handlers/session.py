"""Signing in: the end of the Hub's OAuth, and a way to begin it again. Also files and dead ends."""

from jupyterhub.services.auth import HubOAuthCallbackHandler
from tornado.web import HTTPError, StaticFileHandler
from typing_extensions import override

from carrel_hub.console.handlers.base import HEADERS, SafePage


class SignInCallback(HubOAuthCallbackHandler, SafePage):
    """The OAuth callback of the console: the Hub's code becomes the token."""

    @override
    def get_current_user(self) -> None:
        """See ``SafePage``: nobody before ``prepare``."""

    @override
    async def prepare(self) -> None:
        """Know who is signed in already, for a second visit with the same code."""
        self.current_user = await self.console.hub_auth.get_user(self, sync=False)


class SignInAgain(SafePage):
    """Removes the console's token and goes Home, where the user signs in again."""

    @override
    def get(self) -> None:
        """Remove the token and redirect."""
        self.console.hub_auth.clear_cookie(self)
        self.redirect(self.console.urls.page())


class StaticFiles(StaticFileHandler):
    """Style sheet and scripts; their address carries their version, so they may be kept."""

    @override
    def set_extra_headers(self, path: str) -> None:
        """The page's headers but for the cache."""
        for name, value in HEADERS.items():
            if name != "Cache-Control":
                self.set_header(name, value)


class NotFoundPage(SafePage):
    """The page of unknown addresses."""

    @override
    async def prepare(self) -> None:
        """Answer 404."""
        raise HTTPError(404)
