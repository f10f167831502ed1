"""The address of a stopped named workspace stays its own, also while the default one runs.

Routes are prefixes, so without one of its own ``/user/ada/lab/`` would reach the server at
``/user/ada/``, which knows no such page. A named workspace that is stopped keeps a route to the
Hub, whose page says that it is stopped, why, and has the button that starts it. Not so one whose
name is that of a page of every Jupyter server, such as ``lab``: that page must stay in reach.
"""

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any, Final

from typing_extensions import override

from carrel_hub.front.routes import FrontProxy
from carrel_spawner.rendering import escape_path, join_url

PAGES_OF_JUPYTER: Final = frozenset({
    "api", "carrel", "consoles", "custom", "doc", "edit", "files", "hub", "kernelspecs", "lab",
    "login", "logout", "lsp", "metrics", "nbconvert", "nbextensions", "notebooks", "services",
    "static", "terminals", "tree", "view", "voila",
})  # fmt: skip


class StoppedRoutes(FrontProxy):
    """The Hub's proxy, with routes for stopped servers."""

    app: Any

    @override
    async def add_user(self, user: Any, server_name: str = "") -> None:
        """A server runs; its user's stopped ones must not be taken for pages of it."""
        base: Any = super()
        await base.add_user(user, server_name)
        if not server_name:
            await asyncio.gather(*map(self._add_stopped, _stopped(user)))

    @override
    async def delete_user(self, user: Any, server_name: str = "") -> None:
        """A server stops; the address of a named one leads to the Hub from now on."""
        if _may_be_routed(server_name):
            await self._add_stopped(_spec(user, server_name))
            return
        base: Any = super()
        await base.delete_user(user, server_name)

    @override
    async def check_routes(
        self, user_dict: Any, service_dict: Any, routes: Mapping[str, Any] | None = None
    ) -> None:
        """Check all routes as the Hub does, and those for stopped servers."""
        base: Any = super()
        found = dict(routes or await base.get_all_routes())
        wanted = {spec for user in user_dict.values() for spec in _stopped(user)}
        others = {spec: route for spec, route in found.items() if spec not in wanted}
        await base.check_routes(user_dict, service_dict, others)
        here = self.app.hub.host
        missing = [one for one in wanted if one not in found or found[one]["target"] != here]
        await asyncio.gather(*map(self._add_stopped, missing))

    async def _add_stopped(self, spec: str) -> None:
        base: Any = super()
        await base.add_route(spec, self.app.hub.host, {"stopped": True})


def _stopped(user: Any) -> Iterator[str]:
    """Routes of the user's named servers that neither run nor start nor stop."""
    for name in user.orm_user.orm_spawners:
        if _may_be_routed(name) and not (name in user.spawners and user.spawners[name].active):
            yield _spec(user, name)


def _may_be_routed(server_name: str) -> bool:
    return bool(server_name) and server_name not in PAGES_OF_JUPYTER


def _spec(user: Any, server_name: str) -> str:
    return join_url(user.proxy_spec, escape_path(server_name), "/")
