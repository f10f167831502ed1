"""Base classes of live views: they follow events in the background loop and show changes.

``follow`` changes the view's state and calls ``touch``; at most twice a second ``present`` turns
the state into traits. Unchanged traits are not sent. A settled view publishes its static form once
more, so that a saved notebook keeps the last state. ``QueryView`` requests its state after events,
``WorkView`` shows one workload with buttons.
"""

import asyncio
import concurrent.futures
import contextlib
import os
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any, Final

import anywidget
import traitlets
from IPython.core.interactiveshell import InteractiveShell
from typing_extensions import override

from carrel.client import AsyncClient, Client
from carrel.client.resources.workloads import ACTIONS
from carrel.errors import CarrelError
from carrel.models import Workload

UNSEEN_FACTOR: Final = 10
SILENCE_SECONDS: Final = 2.0
"""The interval of looks at whether the scheduler answers; a look costs no message."""


class LiveView(anywidget.AnyWidget):
    """A view that updates itself while it is shown on a page.

    Attributes:
        trouble: why it does not move any more, empty while all is well.
        console_url: where the web console is, for links to pages of work; empty where not known.
        silent_since: epoch seconds when the scheduler was last heard, 0 while it is.
        pause: seconds between two updates, at least.
    """

    trouble = traitlets.Unicode("").tag(sync=True)
    silent_since = traitlets.Float(0.0).tag(sync=True)
    console_url = traitlets.Unicode("").tag(sync=True)
    pause = 0.5

    def __init__(self, client: Client, **traits: Any) -> None:
        super().__init__(console_url=os.environ.get("CARREL_CONSOLE_URL", ""), **traits)
        self._client = client
        self._shown, self._unseen, self._published = 0, 0, False
        self._touched: asyncio.Event | None = None
        self._sight = asyncio.Event()
        self._running: concurrent.futures.Future[None] | None = None
        self.on_msg(self._on_message)

    @property
    def live(self) -> bool:
        """Whether the view follows events."""
        return self._running is not None and not self._running.done()

    @property
    def settled(self) -> bool:
        """Whether nothing more can change; such a view does not follow events again."""
        return False

    async def follow(self) -> None:
        """Learn of changes and ``touch``; returns when nothing more can change."""
        raise NotImplementedError

    def present(self) -> Mapping[str, Any]:
        """The present values of the traits."""
        raise NotImplementedError

    @property
    def seen(self) -> bool:
        """Whether some place that shows this view is in sight."""
        return self._shown > self._unseen

    def pace(self) -> float:
        """Seconds until the next update: longer while the view is out of sight."""
        return self.pause if self.seen else UNSEEN_FACTOR * self.pause

    def touch(self) -> None:
        """Mark the view as changed. Called from the background loop."""
        if self._touched is not None:
            self._touched.set()

    def start(self) -> None:
        """Follow events, unless the view does already."""
        if not self.live and not self.settled:
            self._running = asyncio.run_coroutine_threadsafe(self._run(), self._client.loop.loop)

    def stop(self) -> None:
        """Stop following events; the view keeps its content."""
        if self._running is not None:
            self._running.cancel()
            self._running = None

    @override
    def close(self) -> None:
        """Stop and remove the view from the page."""
        self.stop()
        super().close()

    async def _run(self) -> None:
        self._touched = asyncio.Event()
        showing = asyncio.create_task(self._show_changes(self._touched))
        trouble = ""
        try:
            await self.follow()
        except CarrelError as error:
            trouble = f"This view does not move any more: {error}"
        finally:
            showing.cancel()
            self._show({**self.present(), "trouble": trouble, "silent_since": 0.0})
            if self.settled and self._published:
                self._publish(update=True)

    async def _show_changes(self, touched: asyncio.Event) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SILENCE_SECONDS):
                    await touched.wait()
            silence = {"silent_since": self._client.aio.silent_since}
            if touched.is_set():
                touched.clear()
                self._show({**self.present(), **silence})
                await self._rest()
            else:
                self._show(silence)

    async def _rest(self) -> None:
        """Wait until the next update is due; a view that comes into sight is updated at once."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        while (left := began + self.pace() - loop.time()) > 0:
            self._sight.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._sight.wait()

    def _show(self, traits: Mapping[str, Any]) -> None:
        new = {name: value for name, value in traits.items() if getattr(self, name) != value}
        if new:
            with self.hold_sync():
                for name, value in new.items():
                    setattr(self, name, value)

    def _on_message(self, _: Any, content: Any, __: Any) -> None:
        """Count the places where the page shows this view, and those out of sight."""
        kind = content.get("type") if isinstance(content, dict) else None
        if kind == "shown":
            self._shown += 1
            self.start()
            self._client.loop.loop.call_soon_threadsafe(self.looked)
        elif kind == "hidden":
            self._shown = max(0, self._shown - 1)
            if not self._shown:
                self.stop()
        elif kind in ("seen", "unseen"):
            self._unseen = max(0, self._unseen + (1 if kind == "unseen" else -1))
            self._client.loop.loop.call_soon_threadsafe(self.looked)
        elif kind == "act":
            self._act(str(content.get("verb")))

    def looked(self) -> None:
        """The view came into sight or left it. Called in the background loop."""
        self._sight.set()

    def _act(self, verb: str) -> None:
        """A button was pressed on a page without a Jupyter server of ours."""

    def _ipython_display_(self, **_: Any) -> None:
        """Publish with a display id, so that a saved notebook keeps the last state."""
        self._published = True
        self._publish()

    def _publish(self, *, update: bool = False) -> None:
        bundle = self._repr_mimebundle_()
        if bundle is None or not InteractiveShell.initialized():
            return
        data, metadata = bundle
        InteractiveShell.instance().display_pub.publish(
            data, metadata, transient={"display_id": self.model_id}, update=update
        )

    @override
    def _repr_mimebundle_(self, **options: Any) -> Any:
        self.start()
        bundle = super()._repr_mimebundle_(**options)
        if bundle is None:
            return None
        data, metadata = bundle
        return {**data, **self.fallback()}, metadata

    def fallback(self) -> dict[str, Any]:
        """The view without widgets: for saved notebooks, terminals, web viewers."""
        raise NotImplementedError


class QueryView(LiveView):
    """Requests the present state after events, not more often than it shows changes."""

    pause = 1.0

    async def ask(self, client: AsyncClient) -> None:
        """Request the present state. Raises ``CarrelError``."""
        raise NotImplementedError

    @override
    async def follow(self) -> None:
        stale = asyncio.Event()
        stale.set()
        asking = asyncio.create_task(self._ask_when(stale))
        try:
            async with aclosing(self._client.aio.events(opened=stale.set)) as events:
                async for event in events:
                    if asking.done():
                        asking.result()
                    if event.type != "report":
                        stale.set()
        finally:
            asking.cancel()

    async def _ask_when(self, stale: asyncio.Event) -> None:
        while True:
            await stale.wait()
            stale.clear()
            await self.ask(self._client.aio)
            self.touch()
            await asyncio.sleep(self.pace())


class WorkView(LiveView):
    """A view of one workload.

    Attributes:
        job: the workload as ``carrel.widgets.job_state.describe`` tells it.
    """

    job = traitlets.Dict().tag(sync=True)

    @property
    def workload(self) -> Workload:
        """The shown workload, as last received."""
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
