"""Notifications about a person's own work, and what follows that work while a page is open.

``WorkNotifications`` is pure: events in, notifications out, each once: work started, was preempted
(for whom), went on, ended, was stopped by a limit; a workspace is about to end or its node is in
trouble. Not notified: what was so before, what its owner did a moment ago, retries after a crash,
parts of larger work. ``WorkFollower`` feeds it from one stream of events for the whole server,
however many pages ask.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Final

from carrel import wording
from carrel.client import AsyncClient
from carrel.errors import CarrelError
from carrel.models import Event, Workload
from carrel.notebook.cell import COMPANION_LABEL
from carrel.widgets.job_state import describe, preemption_text

SILENT_KINDS: Final = frozenset({"workspace", "trial", "replica", "tensorboard", "schedule"})
KEPT: Final = 50
LONGEST: Final = 138  # JupyterLab cuts a notification after 140 characters
ENDED_KEPT: Final = 100


@dataclass(slots=True)
class WorkNotifications:
    """The work of a user, and the latest notifications about it.

    Attributes:
        user: whose work counts.
        began: since when somebody listens, epoch seconds.
        version: counted up with everything that a listener could show.
        latest: the latest notifications, each with the version it came with.
    """

    user: str
    began: float
    version: int = 0
    latest: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=KEPT))
    _known: dict[str, Workload] = field(default_factory=dict)
    _preempted: set[str] = field(default_factory=set)
    _reasons: dict[str, str] = field(default_factory=dict)

    @property
    def known(self) -> frozenset[str]:
        """The uids of the known work."""
        return frozenset(self._known)

    def take_all(self, workloads: Sequence[Workload], known: frozenset[str]) -> None:
        """Replace the known work by a full listing.

        ``known`` was known before it was asked for: what of it is not there any more is gone.
        """
        found = {one.uid: one for one in workloads if self._mine(one)}
        for uid in known - found.keys():
            self._forget(uid)
        for one in workloads:
            self.take(Event(type="workload", workload=one))

    def take(self, event: Event) -> None:
        """An event; of other people's work nothing changes."""
        now = event.workload
        if now.spec.kind == "workspace" and now.spec.user == self.user:
            self._notify_reason(now, gone=event.type == "deleted")
        if not self._mine(now):
            return
        before = self._known.get(now.uid)
        if before is not None and now.resource_version < before.resource_version:
            return
        if event.type == "deleted":
            self._forget(now.uid)
            return
        if before == now:
            return
        self.version += 1
        self._known[now.uid] = now
        if now.spec.kind not in SILENT_KINDS and COMPANION_LABEL not in now.labels:
            self._notify(before, now)
        self._tidy()

    def jobs(self) -> list[dict[str, Any]]:
        """The work, those at work first, then the newest, as views need it."""
        ordered = sorted(self._known.values(), key=lambda w: (w.at_rest, -w.created_at, w.name))
        return [
            {**describe(one, one.status.phase), "kind": one.spec.kind, "uid": one.uid}
            for one in ordered
        ]

    def since(self, version: int) -> list[dict[str, Any]]:
        """The notifications after a version."""
        return [one for one in self.latest if one["version"] > version]

    def _mine(self, workload: Workload) -> bool:
        spec = workload.spec
        return spec.user == self.user and not spec.owner and spec.kind != "workspace"

    def _notify_reason(self, now: Workload, *, gone: bool) -> None:
        """Notify of the reason of a running workspace."""
        reason = now.status.reason
        if gone or now.status.phase not in ("running", "preempting") or reason is None:
            self._reasons.pop(now.uid, None)
        elif self._reasons.get(now.uid) != reason.sentence:
            self._reasons[now.uid] = reason.sentence
            self.version += 1
            self._add("warning", now, f"{now.name}: {reason.sentence} {reason.help}".strip())

    def _forget(self, uid: str) -> None:
        if self._known.pop(uid, None) is not None:
            self._preempted.discard(uid)
            self.version += 1

    def _notify(self, before: Workload | None, now: Workload) -> None:
        if before is None:
            if not now.at_rest or (now.status.ended_at or 0.0) < self.began:
                return
        elif _was_preempted(before, now):
            self._preempted.add(now.uid)
            self._add("warning", now, _preemption(now))
        if before is None or before.status.phase != now.status.phase:
            self._notify_phase(before, now)

    def _notify_phase(self, before: Workload | None, now: Workload) -> None:
        phase, name = now.status.phase, now.name
        if phase == "running":
            if now.uid in self._preempted:
                self._preempted.discard(now.uid)
                self._add("info", now, f"{name} goes on{_from(now)}.")
            elif before is not None and before.status.first_started_at is None:
                self._add("info", now, f"{name} started{_on(now)}.")
        elif phase == "succeeded":
            self._add("success", now, f"{name} succeeded{_after(now)}.")
        elif now.is_retrying:
            ended = "stood still" if now.has_stalled else "crashed"
            self._add("warning", now, f"{name} {ended} and is retried: {_why(now)}")
        elif phase == "failed":
            self._add("error", now, f"{name} failed{_after(now)}: {_why(now)}")
        elif phase == "stopped" and not now.spec.suspend:
            self._add("warning", now, f"{name} stopped: {_why(now)}")

    def _add(self, level: str, workload: Workload, text: str) -> None:
        cut = text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
        self.latest.append(
            {
                "version": self.version,
                "level": level,
                "text": cut.replace("`", ""),
                "project": workload.project,
                "name": workload.name,
            }
        )

    def _tidy(self) -> None:
        """Drop the oldest entries of ended work."""
        ended = [one for one in self._known.values() if one.at_rest]
        for one in sorted(ended, key=lambda one: one.created_at)[: max(0, len(ended) - ENDED_KEPT)]:
            self._known.pop(one.uid)


def _was_preempted(before: Workload, now: Workload) -> bool:
    last, previous = now.status.last_preemption, before.status.last_preemption
    return last is not None and (previous is None or last.at > previous.at)


def _preemption(now: Workload) -> str:
    last = now.status.last_preemption
    told = "preempted." if last is None else preemption_text(last, now.status.phase)
    return f"{now.name} was {told}"


def _from(now: Workload) -> str:
    checkpoint = now.status.checkpoint
    return "" if checkpoint is None else f" from step {checkpoint.step:,}"


def _on(now: Workload) -> str:
    nodes = list(dict.fromkeys(task.node for task in now.status.tasks if task.node))
    return "" if not nodes else f" on {nodes[0]}" if len(nodes) == 1 else f" on {len(nodes)} nodes"


def _after(now: Workload) -> str:
    began, ended = now.status.started_at, now.status.ended_at
    return "" if began is None or ended is None else f" after {wording.duration(ended - began)}"


def _why(now: Workload) -> str:
    return wording.why(now) or "it did not say why."


log = logging.getLogger("carrel.workspace")
UNWATCHED_SECONDS: Final = 90.0
FIRST_SECONDS: Final = 10.0
RETRY_SECONDS: Final = 15.0


class WorkFollower:
    """See the module.

    Args:
        client: speaks to the scheduler with the workspace's token.
        user: whose work; empty: asked of the scheduler.
        clock: epoch seconds.
        changed: told the project of each change of work that the user may see.
    """

    def __init__(
        self,
        client: AsyncClient,
        user: str,
        clock: Callable[[], float],
        changed: Callable[[str], object] = str,
    ) -> None:
        self._client, self._user, self._clock, self._changed = client, user, clock, changed
        self._state = WorkNotifications(user, clock())
        self._asked_at = clock()
        self._known = asyncio.Event()
        self._trouble = ""
        self._task: asyncio.Task[None] | None = None

    async def view(self, seen: str = "") -> dict[str, Any]:
        """The changes since ``seen`` (the ``seen`` of the answer before; empty: the first time).

        Holds ``seen`` only when nothing did. The first answer has no news: those are old.
        """
        self._asked_at = self._clock()
        if self._task is None or self._task.done():
            self._begin()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_SECONDS):
                await self._known.wait()
        news, name = self._state, f"{self._state.began:.3f}"
        now = f"{name}:{news.version}:{self._trouble}"
        if now == seen:
            return {"seen": now}
        life, _, rest = seen.partition(":")
        version = int(rest.partition(":")[0]) if life == name else news.version
        return {
            "seen": now,
            "jobs": news.jobs(),
            "news": news.since(version),
            "trouble": self._trouble,
        }

    async def stop(self) -> None:
        """Follow no more."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def _begin(self) -> None:
        self._known.clear()
        self._state = WorkNotifications(self._user, self._clock())
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while self._watched:
            following = asyncio.create_task(self._follow())
            try:
                while not following.done() and self._watched:
                    await asyncio.wait({following}, timeout=UNWATCHED_SECONDS)
            finally:
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)
            if not following.cancelled():
                await asyncio.sleep(RETRY_SECONDS)

    @property
    def _watched(self) -> bool:
        return self._clock() - self._asked_at < UNWATCHED_SECONDS

    async def _follow(self) -> None:
        """Follow events until the scheduler refuses or cannot be reached."""
        again = asyncio.Event()
        try:
            if not self._user:
                self._user = self._state.user = (await self._client.whoami()).user
            async with asyncio.TaskGroup() as group:
                group.create_task(self._list(again))
                group.create_task(self._read_events(again))
        except* CarrelError as errors:
            self._trouble = str(errors.exceptions[0])
            log.info("Cannot follow the work of this workspace's owner: %s", self._trouble)
            self._known.set()

    async def _read_events(self, again: asyncio.Event) -> None:
        async with aclosing(self._client.events(opened=again.set)) as events:
            async for event in events:
                self._state.take(event)
                if event.type != "report":
                    self._changed(event.workload.project)

    async def _list(self, again: asyncio.Event) -> None:
        """Request the present state whenever the stream is connected."""
        while True:
            await again.wait()
            again.clear()
            known = self._state.known
            self._state.take_all(await self._client.list_workloads(user=self._user), known)
            self._trouble = ""
            self._known.set()
