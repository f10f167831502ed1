"""The part of Carrel's spawners that is the same on one machine and on a cluster.

It holds the life of a workspace as the Hub leads it; the start form and the queue are in
``choices.form_spawner``. ``start()`` is short by design: it waits only for room that is being freed
for this very workspace; any other answer is a refusal with the reason and a way into the queue
(``refusal``). The workload's address is committed to the Hub's database before the wait begins, so
a Hub that restarts in the middle finds the workspace again.

It is no spawner by itself: the Hub wants each subclass of ``Spawner`` to be whole. What it asks of
the scheduler is in ``workspace``, the waits of a start are in ``start``.
"""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

import aiohttp
from traitlets import Bool, Float, Unicode

from carrel.errors import CarrelError
from carrel.models import Workload
from carrel_spawner import options, refusal
from carrel_spawner.choices import assets
from carrel_spawner.choices.form_spawner import FormSpawner
from carrel_spawner.group_commit import keep
from carrel_spawner.options import (
    WorkspaceChoice,
)
from carrel_spawner.rendering import readable_by
from carrel_spawner.start import ProgressLog, StartFailed, StartStage, until_placed, until_ready
from carrel_spawner.watch import watch_of
from carrel_spawner.workspace import (
    PROFILE,
    Address,
    Ending,
    LaunchSpec,
    is_missing,
    is_queued,
)

MARGIN_SECONDS: Final = 5.0
FIRST_ANSWER_SECONDS: Final = 20.0
AGAIN_SECONDS: Final = 0.3


class WorkspaceSpawner(FormSpawner):
    """Workspaces as workloads of Carrel.

    A subclass says how a workspace is run: ``launch_spec``, ``start_server``, and, where it has to,
    ``known_url``, ``reserved_port``, ``take_address``, ``prepare``, ``clean_up`` and ``awaited``.
    """

    # Attributes of the Hub's Spawner.
    server: Any
    port: int
    user_options: Any
    start_timeout: int
    proxy_spec: str

    carrel_workspace_url = Unicode(
        help="The same service as workspaces reach it; `carrel_url` when empty.",
    ).tag(config=True)
    carrel_gateway_url = Unicode(
        "", help="Where workspaces reach the gateway; empty: where people do."
    ).tag(config=True)
    carrel_console_url = Unicode("/services/console/", help="Where people find the console.").tag(
        config=True
    )
    demo = Bool(default_value=False, help="Put the demo notebooks into homes that lack them.").tag(
        config=True
    )
    settle_seconds = Float(0.5, help="How long a refusal must stand before it is believed.").tag(
        config=True
    )
    believed_seconds = Float(
        60.0,
        help="How long after a workspace was seen to run the scheduler's stream is believed that "
        "it still does, so that the Hub's polls need not ask.",
    ).tag(config=True)

    awaited: Collection[StartStage] = (StartStage.UP,)
    whole: WorkspaceChoice | None = None
    """The choice of this start with what its profile and its assets bring."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.address: Address | None = None
        self.ending: Ending | None = None
        self.progress_log = ProgressLog()
        self._starting = False
        self._scheduler_answered = True
        self._running_seen_at = -math.inf
        self._cleanup: asyncio.Task[None] | None = None
        super().__init__(*args, **kwargs)

    def get_env(self) -> dict[str, Any]:
        """The Hub's variables and ours."""
        base: Any = super()
        environment: dict[str, Any] = base.get_env()
        environment["CARREL_URL"] = self.carrel_workspace_url or self.carrel_url
        if self.carrel_gateway_url:
            environment["CARREL_GATEWAY_URL"] = self.carrel_gateway_url
        environment["CARREL_CONSOLE_URL"] = self.carrel_console_url
        whole = self.whole
        if whole is None and self.choice is not None:
            whole = self.choice.with_profile(self.offer)
        if whole is not None:
            environment |= options.launch_variables(whole.environment, whole.volumes)
        return environment

    def launch_spec(self, project: str) -> LaunchSpec:
        """The specification with which the workspace is started; takes the Hub's port and token."""
        raise NotImplementedError

    async def start_server(self, workload: Workload) -> str:
        """Have the workspace's server answer on the node that it got; returns its URL."""
        raise NotImplementedError

    @contextmanager
    def reserved_port(self) -> Iterator[None]:
        """Hold the server's port for the length of a start, where the Hub chooses it."""
        yield

    def take_address(self, address: Address) -> None:
        """Take the names that follow from a new address; called before it is stored."""

    async def prepare(self) -> None:
        """Prepare the server's start; called once the address is stored."""

    async def clean_up(self) -> None:
        """Remove what ``prepare`` made; called when the workspace has ended without ``stop``."""

    def known_url(self) -> str:
        """The expected address of the server."""
        return str(self.server.url)

    async def start(self) -> str:
        """Get a place, start the server there, and return its URL. Raises ``Refused``."""
        self.ending, self._starting = None, True
        allowed = max(MARGIN_SECONDS, self.start_timeout - MARGIN_SECONDS)
        try:
            async with asyncio.timeout(allowed):
                with self.reserved_port():
                    return await self._start_workspace()
        except TimeoutError as error:
            raise refusal.too_slow(allowed, self.progress_log.last) from error
        except CarrelError as error:
            raise refusal.unavailable(error) from error
        finally:
            self._starting = False
            self.progress_log.close()

    async def _start_workspace(self) -> str:
        self.choice = self.choice or await self._choice_of(self.user_options)
        workload = await self._get_place(self.choice)
        choice = self.choice
        # The Hub shows what its database gets: the checked choice, not the raw input.
        self.user_options = choice.options()
        await self._commit_state(Address.of(workload, self.port), choice)
        await self.prepare()
        try:
            url = await self._until_up(workload)
        except StartFailed as failure:
            raise await self._explain(failure, choice) from failure
        self._running_seen_at = time.monotonic()
        return url

    async def _get_place(self, choice: WorkspaceChoice) -> Workload:
        """Submit a new workload, or claim the queued one."""
        self.progress_log.post(5, "Asking the scheduler for a place.")
        queued = await self.workspace.held_place(choice)
        if queued is None:
            known = await self.workspace.all()
            queued = next(filter(is_queued, known), None)
            if queued is None:
                self.whole, checked = await self._put_together(choice)
                running, asked = self.launch_spec(choice.project), choice.with_profile(self.offer)
                return await self.workspace.request(asked, running, known=known, checked=checked)
        if queued.holds_resources:
            profile = queued.labels.get(PROFILE, "")
            self.choice = choice.queued_as(queued, self.offer, profile)
            self.whole = self.choice.with_profile(self.offer)
            if self.choice.assets.data:
                self.whole = replace(self.whole, volumes=assets.folders_of(queued))
            self.progress_log.post(30, "It is your turn; the place in the queue is yours.")
            return await self.workspace.claim(queued, self.launch_spec(queued.project))
        reason = readable_by(queued, self.projects).status.reason
        sentence = reason.sentence if reason else ""
        raise refusal.queued(queued.status.queue_position, sentence, self.queue_url)

    async def _until_up(self, workload: Workload) -> str:
        """Wait for the placement and for the server; returns its URL. Raises ``StartFailed``."""
        placed = await until_placed(
            self.client,
            workload,
            self.progress_log,
            projects=self.projects,
            settle_seconds=self.settle_seconds,
            awaited=self.awaited,
        )
        return await until_ready(self.client, placed, self.start_server(placed), self.progress_log)

    async def _explain(
        self, failure: StartFailed, choice: WorkspaceChoice
    ) -> refusal.WorkspaceRefused:
        """The refusal to raise; a workload that was never placed is withdrawn."""
        if failure.status.stage is StartStage.ENDED:
            tail = await self.workspace.log_tail(failure.workload.project)
            unfit = options.logged_error(failure.workload, tail)
            return refusal.unfit(unfit) if unfit else refusal.ended(failure.status, tail)
        await self.workspace.withdraw(failure.workload)
        await self.clean_up()
        await self._commit_state(None, choice)
        return refusal.no_room(
            failure.status,
            failure.workload,
            choice=choice,
            projects=self.projects,
            queue_url=self.queue_url,
            now=time.time(),
        )

    async def poll(self) -> int | None:
        """``None`` while it runs or nobody can tell, else its exit code."""
        if self.address is None:
            return None if self._starting else 0
        if self._known_running(self.address):
            return None
        try:
            workload = await self._get_workload(self.address)
        except CarrelError as error:
            if is_missing(error):
                await self.clean_up()
                return 0
            self.log.warning("%s is assumed to be running: %s", self._log_name, error)
            return None
        if workload.uid != self.address.uid:
            await self.clean_up()
            return 0
        if self.address.is_at(workload):
            return None
        self.ending = Ending.of(workload)
        await self.clean_up()
        return self.ending.exit_code

    def _known_running(self, address: Address) -> bool:
        """Whether the stream last said that it runs, and the scheduler said so not long ago.

        Removals during a break of the stream are not told, so it is not believed for ever.
        """
        heard = watch_of(self.client).latest(address.uid)
        if heard is None or not address.is_at(heard):
            return False
        return time.monotonic() < self._running_seen_at + self.believed_seconds

    async def _get_workload(self, address: Address) -> Workload:
        """The workload. Raises ``CarrelError``.

        A Hub that just started asks before it listens, and the scheduler needs the Hub to know who
        asks: the first answer is waited for.
        """
        timeout = 0.0 if self._scheduler_answered else FIRST_ANSWER_SECONDS
        end = time.monotonic() + timeout
        while True:
            try:
                found = await self.client.get_workload(address.project, address.name)
            except CarrelError as error:
                if is_missing(error) or time.monotonic() >= end:
                    self._scheduler_answered = True
                    raise
            else:
                self._scheduler_answered, self._running_seen_at = True, time.monotonic()
                return found
            await asyncio.sleep(AGAIN_SECONDS)

    async def stop(self, now: bool = False) -> None:  # noqa: ARG002 - the Hub says it
        """Stop it, whatever state it is in, and wait until nothing of it runs.

        ``now`` changes nothing: the grace period is the workload's.
        """
        if self.address is not None:
            await self.workspace.stop(self.address.project)

    async def progress(self) -> AsyncIterator[dict[str, Any]]:
        """The events of the start, in plain words; for any number of viewers."""
        async for event in self.progress_log.follow():
            yield event

    async def get_url(self) -> str:
        """The URL of a workspace that the Hub found running after its own restart.

        It may still be starting; a start that fails now is left to the Hub's own check.
        """
        if self.address is None:
            return str(self.server.url)
        try:
            async with asyncio.timeout(self.start_timeout):
                found = await self.client.get_workload(self.address.project, self.address.name)
                profile = found.labels.get(PROFILE, "")
                self.choice = self.choice or WorkspaceChoice.of(found, self.offer, profile)
                return await self._until_up(found)
        except (CarrelError, StartFailed, refusal.WorkspaceRefused, TimeoutError) as error:
            self.log.warning("%s may not exist: %s", self._log_name, error)
        return self.known_url()

    def delete_forever(self) -> None:
        """A named server was removed: remove its route and its workload, too."""
        route = str(self.proxy_spec) if self.name else ""
        self._cleanup = asyncio.ensure_future(self._forget(route))

    async def _forget(self, route: str) -> None:
        """The Hub's own check removes the route later if the proxy does not answer now."""
        try:
            if route:
                await self.user.settings["proxy"].delete_route(route)
        except (aiohttp.ClientError, TimeoutError) as error:
            self.log.warning("the address of %s could not be updated: %s", self._log_name, error)
        try:
            for workload in await self.workspace.all():
                await self.workspace.withdraw(workload)
        except CarrelError as error:
            self.log.warning("the record of %s could not be removed: %s", self._log_name, error)

    def get_state(self) -> dict[str, Any]:
        """The state for the Hub's database: the workload's address, or how it ended."""
        base: Any = super()
        state: dict[str, Any] = base.get_state()
        if self.address is not None:
            state["address"] = self.address.as_dict()
        if self.ending is not None:
            state["ending"] = self.ending.as_dict()
        return state

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Read the state from the Hub's database."""
        base: Any = super()
        base.load_state(state)
        self.address = Address.from_dict(state.get("address"))
        self.ending = Ending.from_dict(state.get("ending"))
        if self.address is not None:
            self.port, self._scheduler_answered = self.address.port, False

    def clear_state(self) -> None:
        """Forget the stopped workspace, but for how it ended, which a page shows."""
        base: Any = super()
        base.clear_state()
        self.address = None
        self.progress_log = ProgressLog()

    async def _commit_state(self, address: Address | None, choice: WorkspaceChoice) -> None:
        """Commit now what the Hub would store only after the start."""
        if address is not None:
            self.take_address(address)
        self.address = address
        await keep(self.user.db, lambda: self._store_state(choice))

    def _store_state(self, choice: WorkspaceChoice) -> None:
        self.orm_spawner.state = self.get_state()
        self.orm_spawner.user_options = choice.options()
