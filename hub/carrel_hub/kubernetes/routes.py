"""Tells a proxy that was replaced all routes again, within seconds.

JupyterHub compares the proxy's routes with its own every five minutes, which is enough for a proxy
that lasts. A proxy whose pod is new knows nobody's workspace until then. It has not been told of
the Hub either, so one look at its table says whether it is new.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from tornado.ioloop import PeriodicCallback
from traitlets import Float
from typing_extensions import override

from carrel_hub.resting import RestingRoutes


class KeptRoutes(RestingRoutes):
    """The Hub's proxy, looked after all the time."""

    look_seconds = Float(5.0, help="Seconds between looks whether the proxy is a new one.").tag(
        config=True
    )
    _looking: PeriodicCallback | None = None

    @override
    async def check_routes(
        self, user_dict: Any, service_dict: Any, routes: Mapping[str, Any] | None = None
    ) -> None:
        """The Hub's check; from the first one on, the proxy is looked after."""
        await super().check_routes(user_dict, service_dict, routes)
        if self._looking is None:
            look = partial(self.look, user_dict, service_dict)
            self._looking = PeriodicCallback(look, self.look_seconds * 1000)
            self._looking.start()

    async def look(self, user_dict: Any, service_dict: Any) -> None:
        """Tell the proxy everything if it does not know the Hub."""
        base: Any = self
        try:
            routes = await base.get_all_routes()
            if base.app.hub.routespec not in routes:
                base.log.warning("The proxy is a new one; it is told all routes")
                await self.check_routes(user_dict, service_dict, routes)
        except TimeoutError as error:  # asked again at the next look
            base.log.warning("The proxy does not answer: %s", error)
