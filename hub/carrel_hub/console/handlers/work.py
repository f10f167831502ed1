"""Lists of work: one's own or all that one may see, searched, by state and kind, page by page.

A page is what the service answers to one question, so it is as quick with many jobs as with few.
Marked work is suspended, resumed, deleted or compared together; deleting asks first. The command
palette finds work by name.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from tornado.web import HTTPError
from typing_extensions import override

from carrel.errors import ApiError
from carrel.models import Workload
from carrel_hub.console import kinds, words
from carrel_hub.console.handlers.base import LiveRegions, SignedInPage
from carrel_hub.console.handlers.overview import ACTIVE
from carrel_hub.console.kinds import PLURALS

FILTERS: Final[dict[str, tuple[str, ...]]] = {
    "all": (),
    "running": ACTIVE,
    "pending": ("pending",),
    "failed": ("failed",),
    "succeeded": ("succeeded",),
    "stopped": ("stopped",),
}
PAGE: Final = 50
MOST_FOUND: Final = 12
_MOST_MARKED: Final = 500
_AT_ONCE: Final = 8
_DONE: Final = {"suspend": "suspended", "resume": "resumed", "delete": "deleted"}


@dataclass(frozen=True, slots=True)
class WorkloadFilters:
    """The filters of the list of work: the parameters of the address, checked."""

    state: str = "all"
    kind: str = ""
    search: str = ""
    whose: str = "mine"
    order: str = "newest"
    after: str = ""

    def address(self, page: str, **changes: str) -> str:
        """The address of the list with changes; usual values are left out of it."""
        usual = WorkloadFilters()
        known = {name: getattr(self, name) for name in ("state", "kind", "search", "whose")}
        asked = {**known, "order": self.order, **changes}
        query = {name: text for name, text in asked.items() if text != getattr(usual, name, "")}
        return f"{page}?{urlencode(query)}" if query else page


class WorkPage(SignedInPage):
    """The list."""

    @override
    async def get(self) -> None:
        """Show it."""
        choice = self._choice()
        identity, found = await asyncio.gather(
            self.client.whoami(),
            self.client.workload_page(
                user=self.user if choice.whose == "mine" else None,
                phases=FILTERS[choice.state],
                kind=choice.kind or None,
                search=choice.search,
                newest_first=choice.order == "newest",
                after=choice.after,
                limit=PAGE,
            ),
        )
        self.show(
            "jobs.html",
            section="jobs",
            live=LiveRegions(("jobs",), 15),
            jobs=found.items,
            measured=await self.gpu_use(found.items),
            next=found.next,
            choice=choice,
            filters=list(FILTERS),
            kinds=PLURALS,
            admin=identity.admin,
            note=self.get_query_argument("note", "")[:200],
        )

    def _choice(self) -> WorkloadFilters:
        asked = {name: self.get_query_argument(name, "") for name in WorkloadFilters.__slots__}
        return WorkloadFilters(
            state=asked["state"] if asked["state"] in FILTERS else "all",
            kind=asked["kind"] if asked["kind"] in PLURALS else "",
            search=asked["search"].strip()[:63],
            whose="all" if asked["whose"] == "all" else "mine",
            order="created" if asked["order"] == "created" else "newest",
            after=asked["after"],
        )


class MarkedWork(SignedInPage):
    """Applies an action to the marked rows of the list."""

    @override
    async def post(self) -> None:
        """Apply the action, or ask for confirmation first, and show the list."""
        keys = self._marked()
        action = self.get_body_argument("action", "")
        if action == "compare":
            self.see_other(self.console.urls.compare(f"{one}/{name}" for one, name in keys))
        elif action == "delete" and self.get_body_argument("sure", "") != "yes":
            jobs = await self._read(keys)
            self.show("jobs_delete.html", section="jobs", jobs=jobs, loss=words.loss)
        elif action in _DONE:
            await self._do(action, keys)
        else:
            raise HTTPError(400, "choose what to do with the marked work")

    def _marked(self) -> list[tuple[str, str]]:
        marked = [text.partition("/") for text in self.get_body_arguments("run")]
        keys = [(project, name) for project, slash, name in marked if slash and project and name]
        if not keys or len(keys) != len(marked):
            raise HTTPError(400, "mark the work first, then choose what to do with it")
        if len(keys) > _MOST_MARKED:
            raise HTTPError(400, "mark %d at most", _MOST_MARKED)
        return keys

    async def _read(self, keys: Sequence[tuple[str, str]]) -> list[Workload]:
        gate = asyncio.Semaphore(_AT_ONCE)

        async def read(project: str, name: str) -> Workload:
            async with gate:
                return await self.client.get_workload(project, name)

        return list(await asyncio.gather(*(read(*key) for key in keys)))

    async def _do(self, action: str, keys: Sequence[tuple[str, str]]) -> None:
        gate = asyncio.Semaphore(_AT_ONCE)
        steps: dict[str, Callable[[str, str], Awaitable[object]]] = {
            "suspend": self.client.suspend,
            "resume": self.client.resume,
            "delete": self.client.delete_workload,
        }

        async def one(project: str, name: str) -> str:
            async with gate:
                try:
                    await steps[action](project, name)
                except ApiError as error:
                    return f"{name}: {error}"
            return ""

        refused = [text for text in await asyncio.gather(*(one(*key) for key in keys)) if text]
        done = len(keys) - len(refused)
        note = f"{done} {_DONE[action]}." + (f" Refused: {refused[0]}" if refused else "")
        if len(refused) > 1:
            note += f" And {len(refused) - 1} more."
        self.see_other(f"{self.console.urls.page('jobs')}?{urlencode({'note': note})}")


class FindWork(SignedInPage):
    """Work whose name, or whose user's, holds a text, as JSON for the palette."""

    @override
    async def get(self) -> None:
        """Answer."""
        search = self.get_query_argument("search", "").strip().lower()[:63]
        page = await self.client.workload_page(search=search, newest_first=True, limit=MOST_FOUND)
        found = [
            {
                "text": job.name,
                "about": f"{job.status.phase} {kinds.noun(job)} in {job.project}",
                "address": self.console.urls.job(job.project, job.name),
            }
            for job in page.items
        ]
        self.set_header("Content-Type", "application/json; charset=utf-8")
        self.finish(json.dumps({"found": found}))
