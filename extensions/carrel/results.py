"""Results of jobs, as bytes: one line of JSON that anybody can read, then a pickled object.

The line says how it ended and, of an exception, its type, message and traceback as text; so a
result whose classes are not here still says something. The object is packed by cloudpickle, which
takes functions and classes of a notebook along.

Unpickling runs code. Only what the caller's own jobs handed back is ever unpickled: the service
lets the owner (and administrators) read a result and only the job's own token, or its owner, write
one.
"""

import json
import pickle
import traceback
import zlib
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import Any, Final

from carrel.errors import CarrelError

MOST_BYTES: Final = 32 * 2**20
LONGEST_TEXT: Final = 100_000
MEDIA_TYPE: Final = "application/octet-stream"
VALUE, ERROR, UNSENT = "value", "error", "unsent"


class NoResult(CarrelError):  # noqa: N818 - reads as the fact it states
    """A job has no result, or none that can be read here; the message tells why."""


class RemoteError(CarrelError):
    """The error of a job, where the exception itself cannot be made here.

    Attributes:
        type_name: of the exception.
        traceback: as the job printed it.
    """

    def __init__(self, type_name: str, message: str, trace: str) -> None:
        self.type_name, self.traceback = type_name, trace
        super().__init__(f"{type_name}: {message}" if message else type_name)


class RemoteTraceback(Exception):  # noqa: N818 - a cause, only ever shown
    """The traceback of a job's exception, shown as the cause of the exception."""


@dataclass(frozen=True, slots=True)
class Head:
    """The first line.

    Attributes:
        outcome: ``value``, ``error``, or ``unsent``: there was something that could not be sent.
        type_name: of the exception, or of what could not be sent.
        message: of the exception, or why it could not be sent.
        traceback: of the exception.
    """

    outcome: str
    type_name: str = ""
    message: str = ""
    traceback: str = ""


def encode_value(value: object, most_bytes: int = MOST_BYTES) -> bytes:
    """Encode a value; one that cannot be sent is encoded as the reason why."""
    name = type(value).__qualname__
    try:
        packed = _packed(value)
    except Exception as error:  # noqa: BLE001 - objects raise what they like when pickled
        return _line(Head(UNSENT, name, f"it cannot be packed ({error})"[:LONGEST_TEXT]))
    if len(packed) > most_bytes:
        size, most = len(packed) / 2**20, most_bytes / 2**20
        why = f"it takes {size:.1f} MiB, more than {most:.0f} MiB; save it to a file or checkpoint"
        return _line(Head(UNSENT, name, why))
    return _line(Head(VALUE)) + packed


def encode_error(error: BaseException, most_bytes: int = MOST_BYTES) -> bytes:
    """Encode an exception; type, message and traceback go along as text."""
    trace = "".join(traceback.format_exception(error))[-LONGEST_TEXT:]
    head = Head(ERROR, type(error).__qualname__, str(error)[:LONGEST_TEXT], trace)
    try:
        packed = _packed(error)
        pickle.loads(zlib.decompress(packed))  # noqa: S301 - made one line above
    except Exception:  # noqa: BLE001 - exceptions with own constructors often cannot be unpacked
        packed = b""
    return _line(head) + (packed if len(packed) <= most_bytes else b"")


def decode(content: bytes) -> Any:
    """Decode a result: return its value, or raise its exception.

    Raises:
        NoResult: when there was a value that could not be sent, or cannot be unpacked here.
        RemoteError: for an exception that cannot be made here.
    """
    line, _, packed = content.partition(b"\n")
    try:
        head = Head(**json.loads(line))
    except (ValueError, TypeError) as error:
        raise NoResult("The result is not one that this version of Carrel understands.") from error
    if head.outcome == UNSENT:
        raise NoResult(f"The job's result, a {head.type_name}, stayed there: {head.message}.")
    if head.outcome == VALUE:
        return _unpacked(packed)
    raise _raised(head, packed)


def _raised(head: Head, packed: bytes) -> BaseException:
    try:
        error = pickle.loads(zlib.decompress(packed)) if packed else None  # noqa: S301 - see above
    except Exception:  # noqa: BLE001 - its class is not here, or is another one
        error = None
    if not isinstance(error, Exception):
        return RemoteError(head.type_name, head.message, head.traceback)
    error.__cause__ = RemoteTraceback(f"\n\n{head.traceback}")
    return error


def _unpacked(packed: bytes) -> Any:
    try:
        return pickle.loads(zlib.decompress(packed))  # noqa: S301 - our own job's, see the module
    except Exception as error:
        # Unpickling runs code of its classes, which may raise anything.
        raise NoResult(
            f"The job's result cannot be unpacked here ({type(error).__name__}: {error}); "
            "are the same packages installed?"
        ) from error


def _packed(value: object) -> bytes:
    cloudpickle: Any = import_module("cloudpickle")  # heavy, and it has no types
    return zlib.compress(cloudpickle.dumps(value, protocol=5), 1)


def _line(head: Head) -> bytes:
    fields = {name: text for name, text in asdict(head).items() if text}
    return json.dumps(fields).encode() + b"\n"
