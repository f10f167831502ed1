"""What the views of single pieces of work have in common: buttons that steer."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

import traitlets
from typing_extensions import override

from carrel.client import AsyncClient
from carrel.errors import CarrelError
from carrel.models import Workload
from carrel.widgets.live import LiveView

ACTIONS: Final[dict[str, Callable[[AsyncClient, str, str], Awaitable[Any]]]] = {
    "delete": lambda client, project, name: client.delete_workload(project, name),
    "suspend": lambda client, project, name: client.suspend(project, name),
    "resume": lambda client, project, name: client.resume(project, name),
}


class WorkView(LiveView):
    """A view of one workload.

    Attributes:
        job: the workload as ``carrel.widgets.story.describe`` tells it.
    """

    job = traitlets.Dict().tag(sync=True)

    @property
    def workload(self) -> Workload:
        """What it shows, as last heard of."""
        raise NotImplementedError

    @override
    def _act(self, verb: str) -> None:
        if verb in ACTIONS:
            workload = self.workload
            self._client.loop.start(self._do(verb, workload.project, workload.name))

    async def _do(self, verb: str, project: str, name: str) -> None:
        try:
            await ACTIONS[verb](self._client.aio, project, name)
        except CarrelError as error:
            self.trouble = str(error)
