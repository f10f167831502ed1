"""Workspaces as workloads, one for each server of a user: names, states, and the REST calls.

The name is a DNS label, different for every user and server: ``ada`` -> ``workspace-ada``; her
server ``gpu-lab`` -> ``workspace-ada--gpu-lab``. A name that is no DNS label, or that would make
the result too long or ambiguous, is slugged and ends in ``---`` and a hash of the exact name.
Server names never begin with a dash and never hold two in a row, so the three forms cannot meet.

The environment has two parts: the scheduler stores and shows the one and hides the other, so
everything that gives access has to be in the second: by name when we know it, by the look of its
name otherwise.
"""

import contextlib
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Protocol, Self

from carrel.client import AsyncClient
from carrel.errors import ApiError, CarrelError
from carrel.models import Workload
from carrel_spawner import options, watch
from carrel_spawner.options import ChosenAssets, WorkspaceChoice

PREFIX: Final = "workspace-"
LONGEST: Final = 63
_SAFE: Final = re.compile(r"[a-z0-9]([a-z0-9]|-(?!-))*(?<!-)\Z")
_HASH_LENGTH: Final = 8
_SECRET: Final = re.compile(
    r"(TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|PRIVATE|COOKIE|API_?KEY|ACCESS_?KEY)", re.IGNORECASE
)
_HARMLESS: Final = frozenset({"JUPYTERHUB_COOKIE_HOST_PREFIX_ENABLED"})
GRACE_SECONDS: Final = 10.0
CLEARING_SECONDS: Final = 30.0
PROFILE: Final = "carrel.dev/profile"
"""Label: the kind of workspace that was chosen, which is needed when its turn comes."""


def workspace_name(user: str, server_name: str = "") -> str:
    """The name of the workload that is this user's workspace, at most 63 characters."""
    plain = f"{PREFIX}{user}--{server_name}" if server_name else f"{PREFIX}{user}"
    safe = _SAFE.match(user) and (not server_name or _SAFE.match(server_name))
    if safe and len(plain) <= LONGEST:
        return plain
    ending = f"---{_digest(user, server_name)}"
    wanted = f"{user}-{server_name}" if server_name else user
    slug = re.sub(r"[^a-z0-9]+", "-", wanted.lower()).strip("-")
    slug = slug[: LONGEST - len(PREFIX) - len(ending)].rstrip("-") or "user"
    return f"{PREFIX}{slug}{ending}"


def _digest(user: str, server_name: str) -> str:
    """The digest of both names; the separator can be in neither."""
    exact = f"{user}\0{server_name}".encode()
    return hashlib.sha256(exact).hexdigest()[:_HASH_LENGTH]


def split_secrets(environment: Mapping[str, object]) -> tuple[dict[str, str], dict[str, str]]:
    """``(environment, secret_environment)``; values become strings, missing ones are left out."""
    shown: dict[str, str] = {}
    hidden: dict[str, str] = {}
    for name, value in environment.items():
        if value is None:
            continue
        secret = name not in _HARMLESS and _SECRET.search(name)
        (hidden if secret else shown)[name] = str(value)
    return shown, hidden


@dataclass(frozen=True, slots=True)
class Address:
    """The workload that is the workspace, and the port its server listens on.

    ``attempt`` is the one that this start was for; a later one is another start's.
    """

    project: str
    name: str
    uid: str
    port: int
    attempt: int = 0

    @classmethod
    def of(cls, workload: Workload, port: int) -> Self:
        """The address of a start of this workload."""
        identity = (workload.project, workload.name, workload.uid)
        return cls(*identity, port, workload.status.attempt)

    def is_at(self, workload: Workload) -> bool:
        """Whether what was started there goes on; the workload may have been queued anew since."""
        same = (workload.uid, workload.status.attempt) == (self.uid, self.attempt)
        return same and not workload.at_rest

    def as_dict(self) -> dict[str, Any]:
        """The address as JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any] | None) -> Self | None:
        """Read an address from JSON; ``None`` when there is none."""
        if not stored:
            return None
        where = (stored["project"], stored["name"], stored["uid"], int(stored["port"]))
        return cls(*where, int(stored.get("attempt", 0)))


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of a workspace, for the page that offers to start it again."""

    sentence: str
    help: str
    at: float
    exit_code: int

    def as_dict(self) -> dict[str, Any]:
        """The ending as JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any] | None) -> Self | None:
        """Read an ending from JSON; ``None`` when there is none."""
        if not stored:
            return None
        return cls(
            stored["sentence"], stored["help"], float(stored["at"]), int(stored["exit_code"])
        )

    @classmethod
    def of(cls, workload: Workload) -> Self:
        """The ending of a workload that is at rest, or was and is queued again."""
        status = workload.status
        if not workload.at_rest:
            return cls(
                "It was stopped and queued again; it starts when it is its turn.", "", 0.0, 0
            )
        reason = status.reason
        codes = [task.exit_code for task in status.tasks if task.exit_code is not None]
        return cls(
            sentence=reason.sentence if reason else "The workspace ended.",
            help=reason.help if reason else "",
            at=status.ended_at or 0.0,
            exit_code=codes[0] if codes else 0,
        )


class LaunchSpec(Protocol):
    """The command and environment of a workspace, once its place is known."""

    def fields(self) -> dict[str, Any]:
        """The fields sent to the scheduler, at the request for a placement and at the claim."""
        ...


@dataclass(frozen=True, slots=True)
class Launch:
    """The process to run: its command, its environment in two parts, and the port it listens on."""

    command: Sequence[str]
    environment: Mapping[str, str]
    secret_environment: Mapping[str, str]
    port: int

    def fields(self) -> dict[str, Any]:
        """See ``LaunchSpec``."""
        return {
            "command": list(self.command),
            "environment": dict(self.environment),
            "secret_environment": dict(self.secret_environment),
            "port": self.port,
        }


@dataclass(frozen=True, slots=True)
class HubLaunch:
    """The Hub runs it itself, so the scheduler only needs to know the port."""

    port: int

    def fields(self) -> dict[str, Any]:
        """See ``LaunchSpec``."""
        return {"external": True, "port": self.port}


@dataclass(frozen=True, slots=True)
class Workspace:
    """The workloads that are this user's workspace of this name, one at a time."""

    client: AsyncClient
    user: str
    server_name: str = ""
    grace_seconds: float = GRACE_SECONDS

    @property
    def name(self) -> str:
        """Name of the workload, the same in every project."""
        return workspace_name(self.user, self.server_name)

    async def all(self) -> list[Workload]:
        """List the workloads of this workspace, in all projects and states.

        Other interactive work of the user is of the same kind and has no server name either.
        """
        found = await self.client.list_workloads(user=self.user, kind="workspace")
        return [one for one in found if one.name == self.name]

    async def waiting(self) -> Workload | None:
        """The one in the queue: waiting for its turn, or holding a place that nobody claimed."""
        return next(filter(is_queued, await self.all()), None)

    async def held_place(self, choice: WorkspaceChoice) -> Workload | None:
        """The place that is to be claimed by this start; ``None`` when it is no longer ours."""
        if not choice.claim:
            return None
        try:
            workload = await self.client.get_workload(choice.project, choice.claim)
        except ApiError as error:
            if error.status == 404:
                return None
            raise
        ours = (workload.spec.user, workload.spec.server_name) == (self.user, self.server_name)
        return workload if ours and workload.holds_resources else None

    async def draft(self, choice: WorkspaceChoice) -> Workload:
        """The request that a choice with assets leads to; nothing is stored."""
        body = self._body(choice) | {"hold_for_claim": True, "name_prefix": "workspace"}
        del body["name"]
        return (await self.client.create_workload(body, dry_run=True)).workload

    async def request(
        self,
        choice: WorkspaceChoice,
        running: LaunchSpec,
        *,
        known: Sequence[Workload] | None = None,
        checked: Mapping[str, Any] | None = None,
    ) -> Workload:
        """Ask for a place now. What is left of an earlier one is ended first.

        ``known`` is what ``all`` said a moment ago; without it, it is asked. ``checked`` are sizes
        that stand, whatever the assets say meanwhile.
        """
        await self._clear(choice.project, await self.all() if known is None else known)
        body = self._body(choice) | dict(checked or {})
        return await self.client.create_workload(body | running.fields())

    async def enqueue(
        self, choice: WorkspaceChoice, *, checked: Mapping[str, Any] | None = None
    ) -> Workload:
        """Wait in the queue for a place; the scheduler has the Hub start the workspace then."""
        await self._clear(choice.project, await self.all())
        body = self._body(choice) | dict(checked or {})
        return await self.client.create_workload(body | {"hold_for_claim": True})

    async def claim(self, queued: Workload, running: LaunchSpec) -> Workload:
        """Use the place that the queue gave; it keeps the variables that its assets brought."""
        fields = running.fields()
        if ChosenAssets.of(queued):
            fields["environment"] = queued.spec.environment | fields.get("environment", {})
        return await self.client.claim(queued.project, queued.name, **fields)

    async def withdraw(self, workload: Workload) -> None:
        """End and remove it; it is no error when it is gone."""
        try:
            await self.client.delete_workload(workload.project, workload.name)
        except ApiError as error:
            if error.status != 404:
                raise

    async def stop(self, project: str) -> None:
        """Stop it, keep its record, and wait until nothing of it runs."""
        try:
            stopped = await self.client.suspend(project, self.name)
        except ApiError as error:
            if error.status in (404, 409):  # gone, or ended by itself meanwhile
                return
            raise
        if not stopped.at_rest:
            seconds = self.grace_seconds + CLEARING_SECONDS
            await watch.wait_at_rest(self.client, project, self.name, seconds)

    async def log_tail(self, project: str, lines: int = 20) -> str:
        """The last lines of its log; empty when there are none to be had."""
        try:
            async with contextlib.aclosing(
                self.client.logs(project, self.name, tail=lines)
            ) as pieces:
                return "".join([piece async for piece in pieces])
        except ApiError:
            return ""

    def _body(self, choice: WorkspaceChoice) -> dict[str, Any]:
        return {
            "name": self.name,
            "project": choice.project,
            "kind": "workspace",
            "user": self.user,
            "server_name": self.server_name,
            **choice.sizes(),
            "environment": options.launch_variables(choice.environment, choice.volumes),
            "volumes": [one.as_dict() for one in choice.volumes],
            "labels": {PROFILE: choice.profile} if choice.profile else {},
            "restart_policy": "never",
            "grace_seconds": self.grace_seconds,
            **_with_assets(choice),
        }

    async def _clear(self, project: str, known: Sequence[Workload]) -> None:
        """End what is left of earlier workspaces: stop others', remove ours to free the name."""
        for workload in known:
            if workload.project == project and workload.name == self.name:
                await self.withdraw(workload)
                await watch.wait_gone(
                    self.client, project, self.name, workload.spec.grace_seconds + CLEARING_SECONDS
                )
            elif not workload.at_rest:
                await self.withdraw(workload)


def _with_assets(choice: WorkspaceChoice) -> dict[str, Any]:
    """Add the assets' names; the command is always the spawner's, not that of an asset."""
    return {"assets": choice.assets.fields(), "command": []} if choice.assets else {}


def is_missing(error: CarrelError) -> bool:
    """Whether the error says that the workload does not exist."""
    return isinstance(error, ApiError) and error.status == 404


def is_queued(workload: Workload) -> bool:
    """Whether it waits in the queue or holds a place that is to be claimed."""
    return workload.spec.hold_for_claim and not workload.at_rest and workload.spec.port is None
