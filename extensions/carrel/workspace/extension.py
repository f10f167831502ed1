"""The ``jupyter_server`` extension: activity reports to the scheduler, buttons and limits from it.

Outside a workspace (no ``CARREL_URL``, or no token) it says so once and does nothing.
"""

import time
from importlib.util import find_spec
from typing import Any, Final

from jupyter_server.extension.application import ExtensionApp
from traitlets import Bool, Float
from typing_extensions import override

from carrel.client import AsyncClient
from carrel.errors import CarrelError
from carrel.workspace import page_files, recording, vscode
from carrel.workspace.handlers import rules
from carrel.workspace.notifications import WorkFollower
from carrel.workspace.reporter import ActivityReporter, PostTimer
from carrel.workspace.status import ServerIdentity, WorkspaceStatus

READ_SECONDS: Final = 3.0
PROXY: Final = "jupyter_server_proxy"
"""Disabled in workspaces, which have its handlers from here."""


class CarrelWorkspace(ExtensionApp):
    """Connects one Jupyter server to Carrel's scheduler."""

    name = "carrel"
    extension_url = "/carrel/limits"
    load_other_extensions = True

    activity_interval = Float(
        10.0, min=0.1, help="Seconds between two heartbeats while nothing changes."
    ).tag(config=True)
    activity_debounce = Float(
        0.5, min=0.0, help="Seconds that a change between busy and idle waits before it is told."
    ).tag(config=True)
    look_interval = Float(
        1.0, min=0.05, help="Seconds between two looks for new kernels and terminals."
    ).tag(config=True)

    record_outputs = Bool(
        default_value=True,
        help="Whether outputs of cells are kept while no page is open, and put into files.",
    ).tag(config=True)

    recorder: recording.OutputRecorder | None = None
    client: AsyncClient | None = None
    reporter: ActivityReporter | None = None
    follower: WorkFollower | None = None

    @override
    def initialize_handlers(self) -> None:
        """Open ports; open the endpoints, when there is a scheduler to speak to."""
        server = self.serverapp
        if server is None:
            raise RuntimeError("an extension gets its server before its handlers")
        web_app: Any = server.web_app
        if server.jpserver_extensions.get(PROXY) is False and find_spec(PROXY) is not None:
            from carrel.workspace import port_proxy as ports

            web_app.add_handlers(".*$", ports.port_rules(server))
        if self.record_outputs:
            self.recorder = recording.install(server)
        page_files.install(web_app, server.base_url)
        try:
            self.client = AsyncClient(read_timeout=READ_SECONDS)
        except CarrelError as error:
            self.log.info("Not connected to Carrel: %s", error)
            return
        self.workspace = WorkspaceStatus(self.client, ServerIdentity.of(), time.time)
        self.follower = WorkFollower(
            self.client, self.workspace.identity.user, time.time, self.workspace.changed
        )
        web_app.add_handlers(".*$", rules(server.base_url, self.workspace, self.follower))

    @override
    async def _start_jupyter_server_extension(self, serverapp: Any) -> None:
        if self.client is None:
            return
        self.reporter = ActivityReporter(
            self.workspace,
            PostTimer(interval=self.activity_interval, debounce=self.activity_debounce),
            kernels=serverapp.kernel_manager,
            terminals=serverapp.web_app.settings.get("terminal_manager"),
            events=serverapp.event_logger,
            look_seconds=self.look_interval,
            tool_activity=vscode.last_connected,
        )
        self.reporter.start()

    @override
    async def stop_extension(self) -> None:
        """Write outputs that are in no file yet, close subscriptions and the connection."""
        if self.recorder is not None:
            await self.recorder.stop()
        if self.reporter is not None:
            await self.reporter.stop()
        if self.follower is not None:
            await self.follower.stop()
        if self.client is not None:
            await self.client.close()
