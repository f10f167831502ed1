"""The contract of samples: means of what subjects had and did, by the length of their spans."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from carrel_schema.samples import Sample, Step


class SampleStore(Protocol):
    """Writes and reads means over spans of time; times are epoch seconds."""

    async def add(self, step: Step, at: int, means: Mapping[str, Sample]) -> None:
        """Write the means of the span that begins at ``at``, by subject; again replaces them."""
        ...

    async def read(
        self, step: Step, subjects: Sequence[str], since: float, until: float
    ) -> Mapping[str, Sequence[tuple[int, Sample]]]:
        """Means of spans that begin in [since, until), in order of time, by subject."""
        ...

    async def of_span(self, step: Step, since: int, until: int) -> Mapping[str, Sequence[Sample]]:
        """Means over all subjects, of spans that begin in [since, until)."""
        ...

    async def latest(self, step: Step) -> int | None:
        """The beginning of the last span of that length; ``None`` without one."""
        ...

    async def prune(self, step: Step, before: float) -> int:
        """Remove samples of earlier spans; returns the number."""
        ...
