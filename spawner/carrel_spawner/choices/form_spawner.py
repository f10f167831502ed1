"""The start form of Carrel's spawners, and the queue: what a workspace is chosen to be.

The same check serves the form, the Hub's API and the queue (``option_checks``).
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from traitlets import Float, Integer, Unicode, default
from traitlets.config import LoggingConfigurable

from carrel.client import AsyncClient
from carrel.errors import CarrelError
from carrel.models import Workload
from carrel_spawner import options, refusal
from carrel_spawner.choices import assets, form, option_checks
from carrel_spawner.connections import shared_client
from carrel_spawner.options import (
    BadOption,
    Most,
    Sizes,
    WorkspaceChoice,
    WorkspaceChoices,
    WorkspaceProfile,
)
from carrel_spawner.rendering import escape_path, join_url, readable_by
from carrel_spawner.workspace import GRACE_SECONDS, Workspace


class FormSpawner(LoggingConfigurable):
    """The part of a spawner that offers choices, checks them, and queues workspaces."""

    # Attributes of the Hub's Spawner.
    user: Any
    hub: Any
    orm_spawner: Any
    apply_group_overrides: Any
    name: str
    _log_name: str

    carrel_url = Unicode(
        help="The scheduler's service as the Hub reaches it, such as "
        "`http://127.0.0.1:8000/services/carrel`.",
    ).tag(config=True)
    carrel_token = Unicode(
        help="The spawner's own token, with the scope `custom:carrel:spawn`.",
    ).tag(config=True)
    default_gpus = Integer(0, help="GPUs of a workspace when nothing is chosen.").tag(config=True)
    default_cpu = Float(0.5, help="Processor cores when nothing is chosen.").tag(config=True)
    default_memory_gib = Float(2.0, help="Memory in GiB when nothing is chosen.").tag(config=True)
    most_gpus = Integer(1024, help="The most GPUs that a workspace may be given.").tag(config=True)
    most_cpu = Float(1024.0, help="The most processor cores.").tag(config=True)
    most_memory_gib = Float(65536.0, help="The most memory in GiB.").tag(config=True)
    grace_seconds = Float(
        GRACE_SECONDS, help="How long a workspace that is to stop has for saving its work."
    ).tag(config=True)
    takes_folders = False
    choice: WorkspaceChoice | None = None
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
