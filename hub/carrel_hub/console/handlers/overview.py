"""Home, the cluster and the queue."""

import asyncio
from typing import Final

from typing_extensions import override

from carrel import estimate
from carrel.models import Workload
from carrel_hub.console import words
from carrel_hub.console.handlers.base import LiveRegions, SignedInPage
from carrel_hub.console.pictures.gpu_map import gpu_map

QUEUE_PAGE: Final = 100
MOST_SHOWN: Final = 100
MOST_ESTIMATED: Final = 20
ACTIVE: Final = ("starting", "running", "preempting", "stopping")


class HomePage(SignedInPage):
    """The running work, the pending work, and the rest of the quota."""

    @override
    async def get(self) -> None:
        """Show it."""
        identity, projects, running, waiting = await asyncio.gather(
            self.client.whoami(),
            self.client.list_projects(),
            self.client.workload_page(user=self.user, phases=ACTIVE, limit=MOST_SHOWN),
            self.client.workload_page(user=self.user, phases=("pending",), limit=MOST_SHOWN),
        )
        faults = await self.client.faults() if identity.admin else None
        own = [project for project in projects if project.name in identity.projects]
        pending = waiting.items
        now = self.console.clock()
        starts = await estimate.starts(self.client, pending[:MOST_ESTIMATED], now)
        self.show(
            "home.html",
            section="home",
            faults=faults,
            starts={
                one.uid: estimate.sentence(one, starts[one.uid], now)
                for one in pending
                if one.uid in starts
            },
            live=LiveRegions(("set-aside-notice", "running", "next", "quota"), 15),
            running=sorted(running.items, key=_newest_first),
            measured=await self.gpu_use(running.items),
            more_runs=running.next is not None,
            more_waits=waiting.next is not None,
            pending=sorted(pending, key=_place),
            projects=own,
            may_submit=bool(own),
        )


class ClusterPage(SignedInPage):
    """The page of all GPUs, and the work on them."""

    @override
    async def get(self) -> None:
        """Show it."""
        nodes, identity = await asyncio.gather(self.client.nodes(), self.client.whoami())
        faults = await self.client.faults() if identity.admin else None
        holding = {
            holder.project: holder.color
            for node in nodes
            for device in node.devices
            for holder in device.holders
        }
        self.show(
            "cluster.html",
            section="cluster",
            live=LiveRegions(("cluster",), 5),
            nodes=nodes,
            faults=faults,
            picture=gpu_map(nodes, self.console.urls.job, self.console.clock()),
            holding=sorted(holding.items()),
        )


class QueuePage(SignedInPage):
    """Pending work in the order of service, with its reasons."""

    @override
    async def get(self) -> None:
        """Show it."""
        now = self.console.clock()
        text = self.get_query_argument("after", "0")
        after = int(text) if text.isascii() and text.isdecimal() and len(text) < 8 else 0
        entries, mine = await asyncio.gather(
            self.client.queue(limit=QUEUE_PAGE, after=after),
            self.client.workload_page(user=self.user, phases=("pending",), limit=MOST_ESTIMATED),
        )
        starts = await estimate.starts(self.client, mine.items, now)
        self.show(
            "queue.html",
            starts={one.uid: estimate.sentence(one, starts[one.uid], now) for one in mine.items},
            section="queue",
            live=LiveRegions(("queue",), 15),
            entries=entries,
            same_as=words.same_reasons(entries),
            after=after,
            next=after + QUEUE_PAGE if len(entries) == QUEUE_PAGE else None,
        )


def _newest_first(work: Workload) -> tuple[float, str]:
    return (-(work.status.started_at or work.created_at), work.name)


def _place(work: Workload) -> tuple[int, float]:
    return (work.status.queue_position or 2**31, work.created_at)
