"""The Hub's handlers that no configuration changes: signing out, and what strangers are told.

Any authenticator can be extended by them, see ``ending_sessions``.
"""

import json
from importlib.metadata import entry_points
from typing import Any, Final

import jupyterhub
from jupyterhub.apihandlers.base import APIHandler
from jupyterhub.auth import Authenticator
from jupyterhub.handlers.login import LogoutHandler
from traitlets.utils.importstring import import_item
from typing_extensions import override

from carrel_hub.accounts.sessions import end_browser_sessions

_LOGOUT: Final = "/logout"
HUB_VERSION: Final = jupyterhub.__version__.partition(".")[0]
"""What strangers are told of the Hub's version."""


class Root(APIHandler):
    """``GET /hub/api/``, for everybody: that a Hub answers; ``/hub/api/info`` tells admins more."""

    @override
    def set_default_headers(self) -> None:
        """Any origin may ask, as with the Hub's own handler."""
        self.set_header("Access-Control-Allow-Origin", "*")
        base: Any = super()
        base.set_default_headers()

    @override
    def check_xsrf_cookie(self) -> None:
        """Nothing changes here."""

    @override
    def get(self) -> None:
        """Answer with the first number of the Hub's version."""
        base: Any = super()
        base.finish(json.dumps({"version": HUB_VERSION}))


def ending_sessions(authenticator: type[Authenticator]) -> type[Authenticator]:
    """The authenticator, with a sign-out that ends the person's sessions in all browsers."""

    class EndingSessions(authenticator):  # type: ignore[misc, valid-type]
        """The same sign-in with Carrel's handlers before the Hub's own."""

        @override
        def get_handlers(self, app: Any) -> list[Any]:
            """Replace the handlers of ``/logout`` and ``/api/``."""
            base: Any = super()
            theirs = base.get_handlers(app)
            logout = next((one[1] for one in theirs if one[0] == _LOGOUT), LogoutHandler)
            ours = [(_LOGOUT, _ending(logout)), ("/api/?", Root)]
            return [*ours, *(one for one in theirs if one[0] != _LOGOUT)]

    EndingSessions.__name__ = authenticator.__name__
    return EndingSessions


def authenticator_named(name: str) -> type[Authenticator]:
    """The class that ``JupyterHub.authenticator_class`` would find: an entry point, or a path.

    Raises ``ImportError`` when there is none, saying what would be right.
    """
    for one in entry_points(group="jupyterhub.authenticators", name=name.lower()):
        found: type[Authenticator] = one.load()
        return found
    try:
        imported: type[Authenticator] = import_item(name)
    except ImportError as error:
        known = sorted(one.name for one in entry_points(group="jupyterhub.authenticators"))
        raise ImportError(
            f"authenticator is {name!r}; it should be one of {', '.join(known)}, or the dotted "
            f"path of a class that is installed ({error})"
        ) from error
    return imported


def _ending(logout: type[LogoutHandler]) -> type[LogoutHandler]:
    class SignOut(logout):  # type: ignore[misc, valid-type]
        """Sign out in all browsers: a copy of the Hub's cookie is worth nothing afterwards."""

        @override
        async def default_handle_logout(self) -> None:
            user = self.current_user
            base: Any = super()
            await base.default_handle_logout()
            if user is not None and user.kind == "user":
                end_browser_sessions(user.orm_user)

    return SignOut
