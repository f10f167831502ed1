"""What became of each workload that was submitted with many others."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Why one was refused: a stable code, a sentence, and the fields that are wrong."""

    code: str = ""
    detail: str = ""
    errors: Sequence[Mapping[str, Any]] = ()


class Submitted(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to one of many. ``status`` is what it would have been answered with alone.

    One that the caller had submitted just so before counts as accepted; it is not created again.
    """

    project: str
    name: str
    status: int
    uid: str | None = None
    resource_version: int | None = None
    problem: Problem | None = None

    @property
    def created(self) -> bool:
        """Whether this request created it."""
        return self.status == 201

    @property
    def accepted(self) -> bool:
        """Whether it is there now, as asked for."""
        return self.problem is None


class BatchAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answers to one batch, in its order."""

    items: Sequence[Submitted]
