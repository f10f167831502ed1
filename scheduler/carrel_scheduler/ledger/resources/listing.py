"""Lists over several kinds as of one version, in the order in which the objects were made."""

import asyncio
import re
from collections.abc import Callable, Sequence
from typing import Any, Final
from urllib.parse import urlencode

from carrel_scheduler.kube.client import PAGE, KubeClient
from carrel_scheduler.kube.decoding import decode_page
from carrel_scheduler.kube.errors import Gone
from carrel_scheduler.kube.resources import Resource
from carrel_scheduler.ledger.columns.codec import SOURCES
from carrel_scheduler.ledger.errors import InvalidArgument
from carrel_scheduler.ledger.resources import codec
from carrel_scheduler.ledger.resources.codec import StoredResource
from carrel_scheduler.ledger.store import Page
from carrel_scheduler.quarantine import Quarantine
from carrel_schema import names
from carrel_schema.objects import ObjectT, Workload

Wanted = Callable[[Any], bool]
Position = tuple[float, str]
_TRIES: Final = 5
_NUMBER: Final = re.compile(r"[0-9]+([.][0-9]+)?(e[+-]?[0-9]+)?")


async def everything(
    client: KubeClient, resources: Sequence[Resource], namespace: str = ""
) -> tuple[list[tuple[Resource, StoredResource]], int]:
    """List all objects of these kinds, and the one version that all of them are of."""
    first, *others = resources
    for turn in range(_TRIES):
        found = await client.list(first, StoredResource, namespace, names.UID)
        # Pages may outlive the version that they show; a list in one piece cannot.
        limit = 0 if turn else PAGE
        try:
            rest = await asyncio.gather(
                *(_exactly(client, one, namespace, found.version, limit) for one in others)
            )
        except Gone:
            continue  # so slow that the version is forgotten
        listed = [(first, one) for one in found.items]
        for resource, items in zip(others, rest, strict=True):
            listed += [(resource, one) for one in items]
        return listed, int(found.version)
    raise Gone(410, "Expired", "each version was forgotten before all kinds were read")


async def _exactly(
    client: KubeClient, resource: Resource, namespace: str, version: str, limit: int
) -> list[StoredResource]:
    """List the objects of one kind as of that version, in pages of ``limit``; 0: at once."""
    same = {"labelSelector": names.UID} | ({"limit": str(limit)} if limit else {})
    query = {**same, "resourceVersion": version, "resourceVersionMatch": "Exact"}
    items: list[StoredResource] = []
    while True:
        body = await client.raw("GET", f"{resource.path(namespace)}?{urlencode(query)}")
        part = decode_page(body, StoredResource)
        items += part.items or ()
        if not part.metadata.continue_token:
            return items
        query = {**same, "continue": part.metadata.continue_token}


def readable(
    kind: type[ObjectT], resource: Resource, stored: StoredResource, quarantine: Quarantine
) -> ObjectT | None:
    """The object; ``None`` for one that cannot be read, which is set aside."""
    stored.kind = resource.kind
    key = stored.metadata.labels.get(names.UID) or stored.metadata.uid
    meta = stored.metadata
    with quarantine.guard(SOURCES[kind], key, name=f"{meta.namespace}/{meta.name}".strip("/")):
        return codec.read(kind, stored)
    return None


def filtered(
    *,
    projects: Sequence[str] | None,
    phases: Sequence[str] | None,
    user: str | None,
    workload_kind: str | None,
    without_kinds: Sequence[str],
    labels: dict[str, str] | None,
    search: str,
) -> Wanted:
    """Whether an object passes all given filters."""

    def wanted(obj: Any) -> bool:
        meta = obj.meta
        if labels is not None and any(meta.labels.get(key) != text for key, text in labels.items()):
            return False
        if not isinstance(obj, Workload):
            return True
        spec = obj.spec
        return (
            (projects is None or meta.project in projects)
            and (phases is None or obj.status.phase in phases)
            and (user is None or spec.user == user)
            and (workload_kind is None or spec.kind == workload_kind)
            and spec.kind not in without_kinds
            and (search in meta.name or search in spec.user)
        )

    return wanted


def page(
    found: Sequence[ObjectT],
    version: int,
    limit: int | None,
    after: str,
    *,
    newest_first: bool = False,
) -> Page[ObjectT]:
    """The requested page of a listing."""
    if limit is not None and limit < 1:
        raise InvalidArgument("limit", limit, "at least 1")
    begin = _position(after)
    ordered = sorted(found, key=_place, reverse=newest_first)
    behind = [
        obj
        for obj in ordered
        if begin is None or (_place(obj) < begin if newest_first else _place(obj) > begin)
    ]
    items = behind if limit is None else behind[:limit]
    more = len(items) < len(behind)
    return Page(items, version, _written(items[-1]) if more else "")


def _place(obj: Any) -> Position:
    return (obj.meta.created_at, obj.meta.uid)


def _written(obj: Any) -> str:
    return f"{obj.meta.created_at!r}/{obj.meta.uid}"


def _position(after: str) -> Position | None:
    if not after:
        return None
    at, _, uid = after.partition("/")
    if not uid or _NUMBER.fullmatch(at) is None:
        raise InvalidArgument("after", after, "the `next` of a page")
    return (float(at), uid)
