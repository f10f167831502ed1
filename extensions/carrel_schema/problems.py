"""Problems on the wire (RFC 9457), and answers to batches, each of whose items may have one."""

from collections.abc import Sequence
from typing import Any

import msgspec


class FieldError(msgspec.Struct, frozen=True, kw_only=True):
    """A field that is wrong: where, what was given (shortened), why, what would be right."""

    field: str
    code: str
    expected: str
    value: Any = None


class ProblemBody(msgspec.Struct, frozen=True, kw_only=True, rename={"kind": "type"}):
    """A problem on the wire."""

    title: str
    status: int
    code: str
    detail: str
    errors: Sequence[FieldError] = ()
    kind: str = "about:blank"


class BatchItem(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one item of a batch.

    ``status`` is what a request of its own would have been answered with: 201 for one that was
    created, 200 for one that the same caller had created just so before; else it was refused and
    ``problem`` says why.
    """

    project: str
    name: str
    status: int
    uid: str | None = None
    resource_version: int | None = None
    problem: ProblemBody | None = None

    @property
    def created(self) -> bool:
        """Whether this request created it."""
        return self.status == 201

    @property
    def accepted(self) -> bool:
        """Whether it is there now, as asked for."""
        return self.problem is None


class BatchAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """An answer for each item, in the order of the request."""

    items: Sequence[BatchItem]
