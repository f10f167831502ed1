"""Files of work in the REST API: artifacts, checkpoints, kept copies, models.

Times are epoch seconds, sizes are bytes. Paths are relative, with ``/`` between their parts.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import msgspec

from carrel_schema.constraints import NO_NUL, Constraint, Name, ShortText, Text

MOST_FILES: Final = 20_000
"""The most files of a folder that are listed."""
PIECE_BYTES: Final = 16 * 2**20
"""The most of a file that one request sends to a running task."""
FilePath = Annotated[str, Constraint(min_length=1, max_length=1024, pattern=NO_NUL)]


class StoredFile(msgspec.Struct, frozen=True, kw_only=True):
    """A stored file, by its path in its folder."""

    path: str
    size: int
    modified_at: float


class Artifacts(msgspec.Struct, frozen=True, kw_only=True):
    """The files that a workload keeps.

    ``expires_at``: when they are removed; null while the work has not ended, and for never.
    """

    items: Sequence[StoredFile] = ()
    size: int = 0
    expires_at: float | None = None


class StoredCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint of a workload.

    Attributes:
        name: of its folder, by which work begins from it.
        task: which of the workload's tasks saved it.
        kept_as: the name of its copy that stays; empty: there is none.
    """

    name: str
    step: int
    task: int = 0
    size: int = 0
    saved_at: float = 0.0
    kept_as: str = ""


class CheckpointList(msgspec.Struct, frozen=True, kw_only=True):
    """The checkpoints of a workload, oldest first; ``expires_at`` as of artifacts."""

    items: Sequence[StoredCheckpoint] = ()
    size: int = 0
    expires_at: float | None = None


class KeepRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The name under which a checkpoint is kept; null: made of the work's name and the step."""

    name: Name | None = None
    description: Text = ""


class StoredCopy(msgspec.Struct, frozen=True, kw_only=True):
    """A version of a model, or a kept checkpoint (its version is 1).

    Attributes:
        workload, workload_uid: the run that made it.
        path: of what was copied, in the run's artifacts or checkpoints.
        metrics, parameters: what the run had reported by then.
    """

    project: str
    name: str
    version: int = 1
    user: str = ""
    description: str = ""
    workload: str = ""
    workload_uid: str = ""
    path: str = ""
    size: int = 0
    created_at: float = 0.0
    metrics: Mapping[str, float] = {}
    parameters: Mapping[str, Any] = {}


class CopyList(msgspec.Struct, frozen=True, kw_only=True):
    """Copies, by name and version."""

    items: Sequence[StoredCopy] = ()


class ModelRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A new version of a model.

    Attributes:
        workload: the run whose artifact it is.
        path: of a file or folder among its artifacts; empty: all of them.
        checkpoint: the name of a checkpoint, in place of an artifact.
    """

    name: Name
    workload: Name
    path: Annotated[str, Constraint(max_length=1024, pattern=NO_NUL)] = ""
    checkpoint: ShortText = ""
    description: Text = ""
