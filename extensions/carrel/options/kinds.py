"""The kinds of work that can be asked for, in the order in which one is guessed from options."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of work.

    Attributes:
        name: in the API.
        noun: with its article, for sentences.
        word: in the column TYPE.
        prefix: of numbered names where nobody named it.
        command: whether it needs a command.
        sections: parts of the request without which it says nothing.
        part: only made by the service for work that has parts.
    """

    name: str
    noun: str
    word: str
    prefix: str = "job"
    command: bool = True
    sections: tuple[str, ...] = ()
    part: bool = False


_ALL: Final = (
    Kind("training", "a training", "Train"),
    Kind("distributed", "distributed training", "Distributed"),
    Kind("workspace", "a workspace", "Interactive"),
    Kind("experiment", "an experiment", "Experiment", "sweep", sections=("experiment",)),
    Kind("inference", "an endpoint", "Inference", "serve", sections=("inference",)),
    Kind("notebook", "a notebook", "Notebook", "notebook", command=False, sections=("notebook",)),
    Kind("schedule", "a schedule", "Schedule", "schedule", command=False, sections=("schedule",)),
    Kind("tensorboard", "a TensorBoard", "TensorBoard", "tensorboard", command=False,
         sections=("tensorboard",)),
    Kind("trial", "a trial", "Trial", part=True),
    Kind("replica", "a replica", "Replica", part=True),
)  # fmt: skip
EVERY: Final[Mapping[str, Kind]] = {kind.name: kind for kind in _ALL}
KINDS: Final = tuple(kind for kind in _ALL if not kind.part)


def type_word(name: str) -> str:
    """The word of a kind in tables; a kind that a newer server knows is its own word."""
    return EVERY[name].word if name in EVERY else name.capitalize()
