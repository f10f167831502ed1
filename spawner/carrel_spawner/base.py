"""The part of Carrel's spawners that is the same on one machine and on a cluster.

It holds the settings, the start form and the queue, and the life of a workspace as the Hub leads
it. ``start()`` is short by design: it waits only for room that is being freed for this very
workspace; any other answer is a refusal with the reason and a way into the queue (``refusal``). The
workload's address is committed to the Hub's database before the wait begins, so a Hub that restarts
in the middle finds the workspace again.

It is no spawner by itself: the Hub wants each subclass of ``Spawner`` to be whole. What it asks of
the scheduler is in ``workspace``, the waits of a start are in ``start``.
"""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

import aiohttp
from traitlets import Bool, Float, Integer, Unicode, default
from traitlets.config import LoggingConfigurable

from carrel.client import AsyncClient
from carrel.errors import CarrelError
from carrel.models import Workload
from carrel_spawner import assets, form, option_checks, options, refusal
from carrel_spawner.connections import shared_client
from carrel_spawner.group_commit import keep
from carrel_spawner.options import (
    BadOption,
    Most,
    Sizes,
    WorkspaceChoice,
    WorkspaceChoices,
    WorkspaceProfile,
)
from carrel_spawner.rendering import escape_path, join_url, readable_by
from carrel_spawner.start import ProgressLog, StartFailed, StartStage, until_placed, until_ready
from carrel_spawner.watch import watch_of
from carrel_spawner.workspace import (
    GRACE_SECONDS,
    PROFILE,
    Address,
    Ending,
    LaunchSpec,
    Workspace,
    is_missing,
    is_queued,
)

MARGIN_SECONDS: Final = 5.0
FIRST_ANSWER_SECONDS: Final = 20.0
AGAIN_SECONDS: Final = 0.3


class WorkspaceSpawner(LoggingConfigurable):
    """Workspaces as workloads of Carrel.

    A subclass says how a workspace is run: ``launch_spec``, ``start_server``, and, where it has to,
    ``known_url``, ``reserved_port``, ``take_address``, ``prepare``, ``clean_up`` and ``awaited``.
    """

    # Attributes of the Hub's Spawner.
    user: Any
    hub: Any
    server: Any
    orm_spawner: Any
    apply_group_overrides: Any
    name: str
    port: int
    user_options: Any
    start_timeout: int
    proxy_spec: str
    _log_name: str

    carrel_url = Unicode(
        help="The scheduler's service as the Hub reaches it, such as "
        "`http://127.0.0.1:8000/services/carrel`.",
    ).tag(config=True)
    carrel_token = Unicode(
        help="The spawner's own token, with the scope `custom:carrel:spawn`.",
    ).tag(config=True)
    carrel_workspace_url = Unicode(
        help="The same service as workspaces reach it; `carrel_url` when empty.",
    ).tag(config=True)
    carrel_gateway_url = Unicode(
        "", help="Where workspaces reach the gateway; empty: where people do."
    ).tag(config=True)
    carrel_console_url = Unicode("/services/console/", help="Where people find the console.").tag(
        config=True
    )
    default_gpus = Integer(0, help="GPUs of a workspace when nothing is chosen.").tag(config=True)
    default_cpu = Float(0.5, help="Processor cores when nothing is chosen.").tag(config=True)
    default_memory_gib = Float(2.0, help="Memory in GiB when nothing is chosen.").tag(config=True)
    most_gpus = Integer(1024, help="The most GPUs that a workspace may be given.").tag(config=True)
    most_cpu = Float(1024.0, help="The most processor cores.").tag(config=True)
    most_memory_gib = Float(65536.0, help="The most memory in GiB.").tag(config=True)
    demo = Bool(default_value=False, help="Put the demo notebooks into homes that lack them.").tag(
        config=True
    )
    grace_seconds = Float(
        GRACE_SECONDS, help="How long a workspace that is to stop has for saving its work."
    ).tag(config=True)
    settle_seconds = Float(0.5, help="How long a refusal must stand before it is believed.").tag(
        config=True
    )
    believed_seconds = Float(
        60.0,
        help="How long after a workspace was seen to run the scheduler's stream is believed that "
        "it still does, so that the Hub's polls need not ask.",
    ).tag(config=True)

    takes_folders = False
    awaited: Collection[StartStage] = (StartStage.UP,)
    choice: WorkspaceChoice | None = None
    whole: WorkspaceChoice | None = None
    """The choice of this start with what its profile and its assets bring."""
    _by_rule: Collection[str] = ()

    @property
    def client(self) -> AsyncClient:
        """The connection to the scheduler."""
        return shared_client(self.carrel_url, self.carrel_token)

    @property
    def workspace(self) -> Workspace:
        """The workspace as the scheduler knows it."""
        return Workspace(self.client, self.user.name, self.name, self.grace_seconds)

    @property
    def projects(self) -> list[str]:
        """The projects of this user: by the Hub's groups, and by access rules as last asked for."""
        groups = [group.name for group in self.user.groups]
        return sorted({*options.projects_of(groups), *self._by_rule})

    async def ask_for_projects(self) -> None:
        """Ask the scheduler in which other projects the user may start a workspace."""
        try:
            self._by_rule = frozenset(await self.client.user_projects(self.user.name))
        except CarrelError as error:
            self.log.warning("Projects of %s could not be asked for: %s", self._log_name, error)

    @property
    def offer(self) -> WorkspaceChoices:
        """The possible choices and the defaults."""
        usual = Sizes(self.default_gpus, self.default_cpu, self.default_memory_gib)
        most = Most(self.most_gpus, self.most_cpu, self.most_memory_gib)
        return WorkspaceChoices(usual, most, self.profiles, self.takes_folders)

    @property
    def profiles(self) -> Sequence[WorkspaceProfile]:
        """Kinds of workspaces to choose from."""
        return ()

    @property
    def queue_url(self) -> str:
        """The path to which the queue's buttons post."""
        parts = ["carrel", "queue", self.user.escaped_name]
        return join_url(self.hub.base_url, *parts, *([escape_path(self.name)] if self.name else []))

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

    @default("options_form")
    def _default_options_form(self) -> Any:
        return type(self).render_form

    @default("options_from_form")
    def _default_options_from_form(self) -> Any:
        return self.read_form

    @default("apply_user_options")
    def _default_apply_user_options(self) -> Any:
        return type(self).take_options

    async def render_form(self) -> str:
        """The start form with the present free capacity."""
        await self.apply_group_overrides()
        await self.ask_for_projects()
        supply = await form.ask(self.client, self.projects)
        return form.render(
            self.user.name,
            self.projects,
            supply,
            last=self._last_options(),
            offer=self.offer,
            waiting=None if supply.trouble else await self.waiting(),
            queue_url=self.queue_url,
        )

    async def read_form(self, fields: Mapping[str, Sequence[str]]) -> dict[str, Any]:
        """The form's fields as checked options. Raises ``Refused``."""
        return (await self._choice_of(option_checks.from_form(fields))).options()

    async def take_options(self, user_options: Mapping[str, Any]) -> None:
        """Check options from wherever they came, and keep the choice. Raises ``Refused``."""
        self.choice = await self._choice_of(user_options)

    async def _choice_of(self, user_options: Mapping[str, Any]) -> WorkspaceChoice:
        """See ``checked``; the scheduler is asked about a project that the user is no member of."""
        if user_options.get("project") not in self.projects:
            await self.ask_for_projects()
        return self.checked(user_options)

    def checked(self, user_options: Mapping[str, Any]) -> WorkspaceChoice:
        """The choice from these options. Raises ``Refused``."""
        try:
            return option_checks.check(user_options, self.projects, self.offer)
        except BadOption as error:
            raise refusal.bad_option(error) from error

    async def waiting(self) -> Workload | None:
        """The queued workload of this workspace; ``None`` also when the scheduler is away."""
        try:
            queued = await self.workspace.waiting()
        except CarrelError as error:
            self.log.warning("The queue could not be read for %s: %s", self._log_name, error)
            return None
        return None if queued is None else readable_by(queued, self.projects)

    async def join_queue(self, user_options: Mapping[str, Any]) -> Workload:
        """Queue a workspace with these options. Raises ``Refused``."""
        await self.apply_group_overrides()
        choice = await self._choice_of(user_options)
        try:
            _, checked = await self._put_together(choice)
            return await self.workspace.enqueue(choice.with_profile(self.offer), checked=checked)
        except (CarrelError, TimeoutError) as error:
            raise refusal.unavailable(error) from error

    async def _put_together(
        self, choice: WorkspaceChoice
    ) -> tuple[WorkspaceChoice, dict[str, Any]]:
        """The choice with its profile and assets, and sizes that were checked. Raises ``Refused``.

        Without assets the scheduler is not asked, and the sizes are those of the choice.
        """
        whole = choice.with_profile(self.offer)
        if not choice.assets:
            return whole, {}
        draft = await self.workspace.draft(whole)
        try:
            return assets.put_together(whole, draft, self.offer), assets.checked_sizes(draft)
        except BadOption as error:
            raise refusal.bad_option(error) from error

    async def leave_queue(self) -> None:
        """Leave the queue; it is no error not to be in it. Raises ``Refused``."""
        try:
            queued = await self.workspace.waiting()
            if queued is not None:
                await self.workspace.withdraw(queued)
        except CarrelError as error:
            raise refusal.unavailable(error) from error

    def _last_options(self) -> dict[str, Any]:
        """The previous choice, without a claim: that was good for one start."""
        stored = self.orm_spawner.user_options if self.orm_spawner is not None else None
        return {key: value for key, value in (stored or {}).items() if key != "claim"}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.address: Address | None = None
        self.ending: Ending | None = None
        self.progress_log = ProgressLog()
        self._starting = False
        self._scheduler_answered = True
        self._running_seen_at = -math.inf
        self._cleanup: asyncio.Task[None] | None = None
        super().__init__(*args, **kwargs)

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
