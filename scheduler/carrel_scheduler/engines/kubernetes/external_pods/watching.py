"""Carrying what happens to pods and nodes into the loop.

A pod whose owners can not be read at the moment is read again later; what it uses is counted at
once, if it has a node.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from carrel_scheduler.engines.external import ExternalEvents
from carrel_scheduler.engines.kubernetes.external_pods.messages import (
    GroupLeft,
    GroupSeen,
    GuestNews,
    NodeLeft,
    NodeSeen,
    StrangerSeen,
)
from carrel_scheduler.engines.kubernetes.external_pods.reading import Reader
from carrel_scheduler.engines.kubernetes.pods.types import Node, NodeGroup, Pod
from carrel_scheduler.kube.errors import KubeError
from carrel_scheduler.kube.feed import Feed
from carrel_scheduler.kube.reflector import Change, ChangeKind
from carrel_scheduler.quarantine import Quarantine

log = logging.getLogger(__name__)
AGAIN_SECONDS: Final = 2.0
Tell = Callable[[ExternalEvents], None]
ObjectT = TypeVar("ObjectT", Node, NodeGroup)


async def pump_nodes(feed: Feed[Node], tell: Tell, synced: asyncio.Event) -> None:
    """Every node and each change; ``synced`` is set once those that are there were told."""
    await _pump(feed, tell, synced, NodeSeen, lambda node: NodeLeft(node.metadata.name))


async def pump_groups(feed: Feed[NodeGroup], tell: Tell, synced: asyncio.Event) -> None:
    """Every group of nodes and each change; ``synced`` as for nodes."""
    await _pump(feed, tell, synced, GroupSeen, lambda group: GroupLeft(group.metadata.name))


async def _pump(
    feed: Feed[ObjectT],
    tell: Tell,
    synced: asyncio.Event,
    seen: Callable[[ObjectT], GuestNews],
    left: Callable[[ObjectT], GuestNews],
) -> None:
    heard = feed.subscribe()
    while changes := await heard.batch():
        told = [change for change in changes if change.kind is not ChangeKind.SYNCED]
        news = [
            (left if change.kind is ChangeKind.DELETED else seen)(change.object) for change in told
        ]
        tell(ExternalEvents(tuple(news)))
        if len(told) < len(changes):
            synced.set()


async def pump_pods(
    feed: Feed[Pod], reader: Reader, tell: Tell, synced: asyncio.Event, quarantine: Quarantine
) -> None:
    """Every pod and each change; ``synced`` is set once those that are there were told.

    A pod that cannot be read counts as a stranger's until it changes.
    """
    heard = feed.subscribe()
    unread: dict[str, Pod] = {}
    while True:
        try:
            async with asyncio.timeout(AGAIN_SECONDS if unread else None):
                changes = await heard.batch()
        except TimeoutError:
            changes = [Change(ChangeKind.MODIFIED, pod) for pod in unread.values()]
        if not changes:
            return
        news = await _read(reader, changes, unread, quarantine)
        if news:
            tell(ExternalEvents(tuple(news)))
        if any(change.kind is ChangeKind.SYNCED for change in changes):
            synced.set()


async def _read(
    reader: Reader,
    changes: Sequence[Change[Pod]],
    unread: dict[str, Pod],
    quarantine: Quarantine,
) -> list[GuestNews]:
    """``unread`` is left with the pods that are to be read again."""
    news: list[GuestNews] = []
    for change in changes:
        if change.kind is ChangeKind.SYNCED:
            continue
        pod = change.object
        unread.pop(pod.metadata.uid, None)
        if change.kind is ChangeKind.DELETED:
            news.append(reader.gone(pod))
            continue
        try:
            news.append(await reader.seen(pod))
        except KubeError as error:
            log.warning("what pod %s belongs to is not known yet: %s", pod.metadata.name, error)
            unread[pod.metadata.uid] = pod
            if pod.spec.node_name:
                news.append(StrangerSeen(pod))
        except Exception as error:  # noqa: BLE001 - one pod holds up no other
            quarantine.put("pod", pod.metadata.uid, error)
            if pod.spec.node_name:
                news.append(StrangerSeen(pod))
    return news
