"""What the user chooses and how: the start form, the check of options, and the queue."""

from collections.abc import Mapping, Sequence
from typing import Any

from traitlets import default

from carrel.errors import CarrelError
from carrel.models import Workload
from carrel_spawner import form, options, refusal
from carrel_spawner.bad_option import BadOption
from carrel_spawner.configured import Configured
from carrel_spawner.discretion import readable_by
from carrel_spawner.options import Choice


class Choosing(Configured):
    """The part of the spawner that people meet before a start."""

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
        """The start form with what is free now."""
        await self.apply_group_overrides()
        supply = await form.ask(self.client)
        return form.render(
            self.user.name,
            self.projects,
            supply,
            last=self._last_options(),
            offer=self.offer,
            waiting=None if supply.trouble else await self.waiting(),
            queue_url=self.queue_url,
        )

    def read_form(self, fields: Mapping[str, Sequence[str]]) -> dict[str, Any]:
        """The form's fields as checked options. Raises ``Refused``."""
        return self.checked(options.from_form(fields)).options()

    def take_options(self, user_options: Mapping[str, Any]) -> None:
        """Check options from wherever they came, and keep the choice. Raises ``Refused``."""
        self.choice = self.checked(user_options)

    def checked(self, user_options: Mapping[str, Any]) -> Choice:
        """The choice that these options make. Raises ``Refused``."""
        try:
            return options.check(user_options, self.projects, self.offer)
        except BadOption as error:
            raise refusal.bad_option(error) from error

    async def waiting(self) -> Workload | None:
        """This workspace's workload in the queue; ``None`` also when nobody can tell."""
        try:
            queued = await self.workplace.waiting()
        except CarrelError as error:
            self.log.warning("The queue could not be read for %s: %s", self._log_name, error)
            return None
        return None if queued is None else readable_by(queued, self.projects)

    async def join_queue(self, user_options: Mapping[str, Any]) -> Workload:
        """Wait in the queue with these options. Raises ``Refused``."""
        await self.apply_group_overrides()
        choice = self.checked(user_options)
        try:
            return await self.workplace.enqueue(choice.furnished(self.offer))
        except (CarrelError, TimeoutError) as error:
            raise refusal.unavailable(error) from error

    async def leave_queue(self) -> None:
        """Leave the queue; it is no error not to be in it. Raises ``Refused``."""
        try:
            queued = await self.workplace.waiting()
            if queued is not None:
                await self.workplace.withdraw(queued)
        except CarrelError as error:
            raise refusal.unavailable(error) from error

    def _last_options(self) -> dict[str, Any]:
        """The previous choice, without a claim: that was good for one start."""
        stored = self.orm_spawner.user_options if self.orm_spawner is not None else None
        return {key: value for key, value in (stored or {}).items() if key != "claim"}
