"""Messages between the two processes of a worker."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

FUNCTION: Final = "function.bin"
ITEMS_PER_FILE: Final = 128
LENGTH_BYTES: Final = 8


def items_file(number: int) -> str:
    """The file in a map's folder that holds the item of this number."""
    return f"items-{number // ITEMS_PER_FILE}.bin"


@dataclass(frozen=True, slots=True)
class Order:
    """A trial to run.

    Attributes:
        command: with its parameters in their places; of an item of a map the folder to work in.
        environment: beside that of the worker.
    """

    trial: int
    command: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class TrialEnd:
    """The end of a trial.

    Attributes:
        error: why it failed; empty: it did not.
        left: it was preempted and is to be run again.
        said: values of the metric, result and last metrics, as in the request.
        output: what an item returned or raised, encoded.
    """

    trial: int
    error: str = ""
    left: bool = False
    said: dict[str, Any] = field(default_factory=dict)
    output: bytes = b""


def framed(outputs: Sequence[tuple[int, bytes]]) -> bytes:
    """Outputs as one: of each its number and length in eight bytes, then what it is."""
    return b"".join(
        number.to_bytes(LENGTH_BYTES, "big") + len(content).to_bytes(LENGTH_BYTES, "big") + content
        for number, content in outputs
    )


def unframed(content: bytes) -> list[tuple[int, bytes]]:
    """The outputs that ``framed`` put together."""
    found, at = [], 0
    while at < len(content):
        number, length = (
            int.from_bytes(content[first : first + LENGTH_BYTES], "big")
            for first in (at, at + LENGTH_BYTES)
        )
        at += 2 * LENGTH_BYTES
        found.append((number, content[at : at + length]))
        at += length
    return found
