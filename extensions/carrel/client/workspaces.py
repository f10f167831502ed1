"""Workspaces as objects: listed, started, stopped, copied and removed through the Hub.

A workspace is a server of the Hub: the default one, or a named one. Its definition is what was
chosen for its last start (project, GPUs, processors, memory, Python environment, folders); a copy
is that definition under another name. The Hub asks the scheduler for the room, and is asked here
with the user's own token.
"""

import os
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final, Self
from urllib.parse import urljoin

import msgspec
from typing_extensions import override

from carrel.client.sync import Client
from carrel.client.transport import Answered, Transport, segment
from carrel.errors import ApiError, BadSetting

SERVICE: Final = "/services/carrel"
SIZES: Final = frozenset({"gpus", "gpu_memory_gib", "cpu", "memory_gib"})
NOT_CHOSEN: Final = frozenset({"claim"})
MAY_NOT: Final = (
    "This token may not look after workspaces: sign in with one from the Hub's token page, "
    "`carrel login`."
)


class WorkspaceServer(msgspec.Struct, frozen=True, kw_only=True):
    """A workspace as the Hub knows it; ``name`` is empty for the default one.

    Attributes:
        ready: it can be used; ``pending`` says what is under way (``spawn`` or ``stop``).
        stopped: neither runs nor is under way.
        url: path on the Hub, or with subdomains a whole URL.
        user_options: its definition; ``None`` when it never ran.
    """

    name: str = ""
    ready: bool = False
    pending: str | None = None
    stopped: bool = False
    url: str = ""
    user_options: dict[str, Any] | None = None

    def address(self, hub: str) -> str:
        """The URL of the workspace. With subdomains the Hub tells one of another host."""
        return urljoin(hub, self.url)


class _HubUser(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    servers: dict[str, WorkspaceServer] = {}


class HubTransport(Transport):
    """Talks to the Hub's own API instead of the scheduler's."""

    @override
    def url(self, path: str) -> str:
        """The full URL of a path of the Hub's API."""
        own = os.environ.get("JUPYTERHUB_API_URL", "").rstrip("/")
        base = self.settings.url.removesuffix(SERVICE)
        return f"{own or f'{base}/hub/api'}{path}"

    @override
    async def check(self, response: Answered) -> None:
        """Raise what a response other than success means, in the Hub's words."""
        if response.status < 400 or response.status == 401:
            await super().check(response)
            return
        if response.status == 403:
            raise ApiError(403, "missing_scope", detail=MAY_NOT)
        try:
            body = msgspec.json.decode(await response.read(), type=dict[str, Any])
        except msgspec.MsgspecError:
            body = {}
        raise ApiError(response.status, detail=str(body.get("message") or response.reason))


class Workspaces:
    """The workspaces of the owner of the client's token; use it in a ``with`` statement.

    Raises ``CarrelError`` when the Hub refuses or is not reached.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._hub = HubTransport(client.settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection to the Hub."""
        self._client.loop.run(self._hub.close())

    @cached_property
    def _user(self) -> str:
        return self._client.loop.run(self._hub.ask("GET", "/user", _HubUser)).name

    def all(self) -> list[WorkspaceServer]:
        """List the workspaces by name, stopped ones too; the default one only if it ever ran."""
        path = f"/users/{segment(self._user)}"
        found = self._client.loop.run(
            self._hub.ask("GET", path, _HubUser, parameters={"include_stopped_servers": "1"})
        )
        return [found.servers[name] for name in sorted(found.servers)]

    def get(self, name: str) -> WorkspaceServer:
        """Find a workspace. Raises ``BadSetting`` when there is none of that name."""
        known = self.all()
        for one in known:
            if one.name == name:
                return one
        names = ", ".join(one.name or "(the default one)" for one in known)
        raise BadSetting(f"There is no workspace {name!r}; there are {names or 'none'}.")

    def start(self, name: str = "", definition: Mapping[str, Any] | None = None) -> None:
        """Start a workspace, by default as it was started last; it runs some seconds later.

        Args:
            name: a new one makes a workspace; empty: the default one.
            definition: ``project``, ``gpus`` (below 1: a part of one), ``gpu_memory_gib`` (of one
                that it shares, in place of ``gpus``), ``cpu`` (cores), ``memory_gib``, ``profile``
                (a kind that the admin offers), ``environment`` (prefix of a Python environment of
                one's own), ``volumes`` (``SOURCE[:DESTINATION][:ro]``, or objects with these names
                and ``read_only``), and assets by name: ``environment_asset``, ``compute`` (the
                sizes are its own then, but for those given with it), ``data`` (a list); what is
                left out stays as it was, and at first is the Hub's to choose.
        """
        known = {one.name: one for one in self.all()}
        last = definition_of(known[name]) if name in known else {}
        asked = dict(definition or {})
        if asked.get("compute"):  # says the sizes, instead of what they were
            last = {field: value for field, value in last.items() if field not in SIZES}
        self._start(name, last | asked)

    def create(self, name: str, definition: Mapping[str, Any] | None = None) -> None:
        """Create a workspace and start it; ``definition`` as in ``start``.

        One whose definition is refused is not kept; one that found no room is, to be started later.

        Raises:
            BadSetting: when the name is taken, or is none.
        """
        self._check_free(name)
        try:
            self._start(name, dict(definition or {}))
        except ApiError as error:
            if error.status == 400 and any(one.name == name for one in self.all()):
                self.delete(name)
            raise

    def stop(self, name: str = "") -> None:
        """Stop a workspace and keep its definition and files."""
        self._send("DELETE", name, None)

    def clone(self, name: str, new_name: str) -> None:
        """Start a copy of its definition under a new name; files are the user's, and shared.

        Raises:
            BadSetting: when the new name is taken or there is no workspace to copy.
        """
        source = self.get(name)
        self._check_free(new_name)
        self._start(new_name, definition_of(source))

    def _check_free(self, name: str) -> None:
        if not name or any(one.name == name for one in self.all()):
            raise BadSetting(f"{name!r} cannot be its name: choose one that is free.")

    def delete(self, name: str) -> None:
        """Stop a named workspace and forget its definition; files stay."""
        if not name:
            raise BadSetting("The default workspace can be stopped, not deleted.")
        self.get(name)
        self._send("DELETE", name, {"remove": True})

    def _send(self, method: str, name: str, body: Mapping[str, Any] | None) -> None:
        server = f"servers/{segment(name)}" if name else "server"
        path = f"/users/{segment(self._user)}/{server}"
        self._client.loop.run(self._hub.send(method, path, body=body, repeatable=False))

    def _start(self, name: str, definition: Mapping[str, Any]) -> None:
        self._send("POST", name, {"user_options": dict(definition)} if definition else None)


def definition_of(server: WorkspaceServer) -> dict[str, Any]:
    """The choices of a workspace that can be made again for another start."""
    chosen = server.user_options or {}
    return {key: value for key, value in chosen.items() if key not in NOT_CHOSEN}
