"""The kinds of work that can be asked for, in the order in which one is guessed from options."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from carrel_schema.kinds import KINDS as FACTS
from carrel_schema.kinds import WorkloadKind


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of work.

    Attributes:
        name: in the API.
        noun: with its article, for sentences.
        word: in the column TYPE.
        prefix: of numbered names where nobody named it.
    """

    name: WorkloadKind
    noun: str
    word: str
    prefix: str = "job"

    @property
    def command(self) -> bool:
        """Whether it needs a command."""
        return FACTS[self.name].command

    @property
    def sections(self) -> tuple[str, ...]:
        """Parts of the request without which it says nothing."""
        return FACTS[self.name].required

    @property
    def part(self) -> bool:
        """Whether it is only made by the service for work that has parts."""
        return FACTS[self.name].part


_ALL: Final = (
    Kind("training", "a training", "Train"),
    Kind("distributed", "distributed training", "Distributed"),
    Kind("workspace", "a workspace", "Interactive"),
    Kind("experiment", "an experiment", "Experiment", "sweep"),
    Kind("inference", "an endpoint", "Inference", "serve"),
    Kind("notebook", "a notebook", "Notebook", "notebook"),
    Kind("schedule", "a schedule", "Schedule", "schedule"),
    Kind("tensorboard", "a TensorBoard", "TensorBoard", "tensorboard"),
    Kind("trial", "a trial", "Trial"),
    Kind("replica", "a replica", "Replica"),
)  # fmt: skip
EVERY: Final[Mapping[str, Kind]] = {kind.name: kind for kind in _ALL}
KINDS: Final = tuple(kind for kind in _ALL if not kind.part)


def type_word(name: str) -> str:
    """The word of a kind in tables; a kind that a newer server knows is its own word."""
    return EVERY[name].word if name in EVERY else name.capitalize()
