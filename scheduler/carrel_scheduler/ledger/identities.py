"""Identities of objects that were written lately, as their last committed write left them.

Used by the one thread that writes. An entry is good for the version that it carries and for no
other; entries are dropped oldest first.
"""

from collections.abc import Mapping
from typing import Final

from carrel_schema.objects import Meta

MOST: Final = 100_000


class Identities:
    """``Meta`` by uid."""

    def __init__(self) -> None:
        self._metas: dict[str, Meta] = {}

    def get(self, uid: str) -> Meta | None:
        """The latest that is remembered."""
        return self._metas.get(uid)

    def keep(self, metas: Mapping[str, Meta]) -> None:
        """Remember what was committed."""
        for uid, meta in metas.items():
            self._metas.pop(uid, None)
            self._metas[uid] = meta
        while len(self._metas) > MOST:
            del self._metas[next(iter(self._metas))]
