"""The life of a workspace as the Hub leads it, the same on one machine and on a cluster.

``start()`` is short by design. It waits only for room that is being freed for this very workspace;
any other answer is a refusal with the reason and a way into the queue (``refusal``). The workload's
address is committed to the Hub's database before the wait begins, so a Hub that restarts in the
middle finds the workspace again. A part of a spawner, which says how a workspace is run at its
place: ``running``, ``arrive``, and, where it has to, ``settle``, ``reserve``, ``left``, ``enough``.
"""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import aiohttp

from carrel.errors import CarrelError
from carrel.models import Workload
from carrel_spawner import misfit, refusal
from carrel_spawner.bulletin import Bulletin
from carrel_spawner.choosing import Choosing
from carrel_spawner.discretion import readable_by
from carrel_spawner.feed import feed_of
from carrel_spawner.keeping import keep
from carrel_spawner.options import Choice
from carrel_spawner.starting import NotPlaced, until_arrived, until_placed
from carrel_spawner.state import Address, Ending
from carrel_spawner.verdict import Outcome
from carrel_spawner.workplace import PROFILE, Running, is_gone, is_queued

MARGIN_SECONDS: Final = 5.0
FIRST_ANSWER_SECONDS: Final = 20.0
AGAIN_SECONDS: Final = 0.3


class Lifecycle(Choosing):
    """Workspaces as workloads of Carrel: the Hub's life cycle."""

    user_options: Any
    start_timeout: int
    proxy_spec: str

    enough: Collection[Outcome] = (Outcome.UP,)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.address: Address | None = None
        self.ending: Ending | None = None
        self.bulletin = Bulletin()
        self._starting = False
        self._met = True
        self._seen_at = -math.inf
        self._farewell: asyncio.Task[None] | None = None
        super().__init__(*args, **kwargs)

    def running(self, project: str) -> Running:
        """How the workspace is run; takes the Hub's port and token of this start."""
        raise NotImplementedError

    async def arrive(self, workload: Workload) -> str:
        """Have the workspace's server answer at the place that it got; returns its URL."""
        raise NotImplementedError

    @contextmanager
    def room(self) -> Iterator[None]:
        """What this machine keeps for the length of a start."""
        yield

    def settle(self, address: Address) -> None:
        """Take the names that follow from a new address; called before it is kept."""

    async def reserve(self) -> None:
        """What has to be there before the place is; called once the address is kept."""

    async def left(self) -> None:
        """Called when nothing of the workspace runs, or will, without ``stop`` being called."""

    def known_url(self) -> str:
        """Where it should answer by all that is known."""
        return str(self.server.url)

    async def start(self) -> str:
        """Get a place, start the server there, and return its URL. Raises ``Refused``."""
        self.ending, self._starting = None, True
        allowed = max(MARGIN_SECONDS, self.start_timeout - MARGIN_SECONDS)
        try:
            async with asyncio.timeout(allowed):
                with self.room():
                    return await self._come_up()
        except TimeoutError as error:
            raise refusal.too_slow(allowed, self.bulletin.last) from error
        except CarrelError as error:
            raise refusal.unavailable(error) from error
        finally:
            self._starting = False
            self.bulletin.close()

    async def _come_up(self) -> str:
        self.choice = self.choice or self.checked(self.user_options)
        workload = await self._take_place(self.choice)
        choice = self.choice
        # What the Hub shows is what its database gets: the checked choice, not what was typed.
        self.user_options = choice.options()
        await self._keep(Address.of(workload, self.port), choice)
        await self.reserve()
        try:
            url = await self._until_there(workload)
        except NotPlaced as outcome:
            raise await self._explain(outcome, choice) from outcome
        self._seen_at = time.monotonic()
        return url

    async def _take_place(self, choice: Choice) -> Workload:
        """A new workload, or the place that the queue gave."""
        self.bulletin.post(5, "Asking the scheduler for a place.")
        queued = await self.workplace.claimable(choice)
        if queued is None:
            known = await self.workplace.all()
            queued = next(filter(is_queued, known), None)
            if queued is None:
                running, whole = self.running(choice.project), choice.furnished(self.offer)
                return await self.workplace.request(whole, running, known=known)
        if queued.holds_resources:
            profile = queued.labels.get(PROFILE, "")
            self.choice = choice.queued_as(queued, self.offer, profile)
            self.bulletin.post(30, "It is your turn; the place in the queue is yours.")
            return await self.workplace.claim(queued, self.running(queued.project))
        reason = readable_by(queued, self.projects).status.reason
        sentence = reason.sentence if reason else ""
        raise refusal.queued(queued.status.queue_position, sentence, self.queue_url)

    async def _until_there(self, workload: Workload) -> str:
        """Both waits of a start; returns where it answers. Raises ``NotPlaced``."""
        await until_placed(
            self.client,
            workload,
            self.bulletin,
            projects=self.projects,
            settle_seconds=self.settle_seconds,
            enough=self.enough,
        )
        return await until_arrived(self.client, workload, self.arrive(workload), self.bulletin)

    async def _explain(self, outcome: NotPlaced, choice: Choice) -> refusal.Refused:
        """The refusal to raise; a place that was never had is given back."""
        if outcome.verdict.outcome is Outcome.ENDED:
            tail = await self.workplace.log_tail(outcome.workload.project)
            unfit = misfit.sentence(outcome.workload, tail)
            return refusal.unfit(unfit) if unfit else refusal.ended(outcome.verdict, tail)
        await self.workplace.withdraw(outcome.workload)
        await self.left()
        await self._keep(None, choice)
        return refusal.no_room(
            outcome.verdict,
            outcome.workload,
            choice=choice,
            projects=self.projects,
            queue_url=self.queue_url,
            now=time.time(),
        )

    async def poll(self) -> int | None:
        """``None`` while it runs or nobody can tell, else its exit code."""
        if self.address is None:
            return None if self._starting else 0
        if self._heard_well(self.address):
            return None
        try:
            workload = await self._look(self.address)
        except CarrelError as error:
            if is_gone(error):
                await self.left()
                return 0
            self.log.warning("%s is taken to run on: %s", self._log_name, error)
            return None
        if workload.uid != self.address.uid:
            await self.left()
            return 0
        if self.address.is_at(workload):
            return None
        self.ending = Ending.of(workload)
        await self.left()
        return self.ending.exit_code

    def _heard_well(self, address: Address) -> bool:
        """Whether it ran by the last that was heard of it, and was seen not long ago.

        Removals during a break of the stream are not told, so it is not believed for ever.
        """
        heard = feed_of(self.client).latest(address.uid)
        if heard is None or not address.is_at(heard):
            return False
        return time.monotonic() < self._seen_at + self.believed_seconds

    async def _look(self, address: Address) -> Workload:
        """The workload. Raises ``CarrelError``.

        A Hub that just started asks before it listens, and the scheduler needs the Hub to know who
        asks: the first answer is waited for.
        """
        patience = 0.0 if self._met else FIRST_ANSWER_SECONDS
        end = time.monotonic() + patience
        while True:
            try:
                found = await self.client.get_workload(address.project, address.name)
            except CarrelError as error:
                if is_gone(error) or time.monotonic() >= end:
                    self._met = True
                    raise
            else:
                self._met, self._seen_at = True, time.monotonic()
                return found
            await asyncio.sleep(AGAIN_SECONDS)

    async def stop(self, now: bool = False) -> None:  # noqa: ARG002 - the Hub says it
        """Stop it, whatever state it is in, and wait until nothing of it runs.

        ``now`` changes nothing: the grace period is the workload's.
        """
        if self.address is not None:
            await self.workplace.stop(self.address.project)

    async def progress(self) -> AsyncIterator[dict[str, Any]]:
        """What happens, in plain words; for any number of viewers."""
        async for event in self.bulletin.follow():
            yield event

    async def get_url(self) -> str:
        """Where a workspace answers that the Hub found after its own restart.

        It may still be starting; a start that fails now is left to the Hub's own check.
        """
        if self.address is None:
            return str(self.server.url)
        try:
            async with asyncio.timeout(self.start_timeout):
                found = await self.client.get_workload(self.address.project, self.address.name)
                profile = found.labels.get(PROFILE, "")
                self.choice = self.choice or Choice.of(found, self.offer, profile)
                return await self._until_there(found)
        except (CarrelError, NotPlaced, refusal.Refused, TimeoutError) as error:
            self.log.warning("%s may not be there: %s", self._log_name, error)
        return self.known_url()

    def delete_forever(self) -> None:
        """A named server was removed: so are its address and its record at the scheduler."""
        route = str(self.proxy_spec) if self.name else ""
        self._farewell = asyncio.ensure_future(self._forget(route))

    async def _forget(self, route: str) -> None:
        """The Hub's own check takes the address away later if the proxy does not answer now."""
        try:
            if route:
                await self.user.settings["proxy"].delete_route(route)
        except (aiohttp.ClientError, TimeoutError) as error:
            self.log.warning("The address of %s stays for now: %s", self._log_name, error)
        try:
            for workload in await self.workplace.all():
                await self.workplace.withdraw(workload)
        except CarrelError as error:
            self.log.warning("The record of %s stays: %s", self._log_name, error)

    def get_state(self) -> dict[str, Any]:
        """For the Hub's database: where it runs, or how it ended."""
        base: Any = super()
        state: dict[str, Any] = base.get_state()
        if self.address is not None:
            state["address"] = self.address.as_dict()
        if self.ending is not None:
            state["ending"] = self.ending.as_dict()
        return state

    def load_state(self, state: Mapping[str, Any]) -> None:
        """From the Hub's database."""
        base: Any = super()
        base.load_state(state)
        self.address = Address.from_dict(state.get("address"))
        self.ending = Ending.from_dict(state.get("ending"))
        if self.address is not None:
            self.port, self._met = self.address.port, False

    def clear_state(self) -> None:
        """It runs no longer; how it ended stays for the page that says so."""
        base: Any = super()
        base.clear_state()
        self.address = None
        self.bulletin = Bulletin()

    async def _keep(self, address: Address | None, choice: Choice) -> None:
        """Have committed now what the Hub would only keep after the start."""
        if address is not None:
            self.settle(address)
        self.address = address
        await keep(self.user.db, lambda: self._write_down(choice))

    def _write_down(self, choice: Choice) -> None:
        self.orm_spawner.state = self.get_state()
        self.orm_spawner.user_options = choice.options()
