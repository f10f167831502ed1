"""Assets: parts that work is put together from, by name: environments, compute resources, data.

A request names them in ``assets``; what it says itself wins. An environment says what runs where, a
compute resource how much it gets, a data source what it finds. Of several assets of a name that of
the narrowest scope counts.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal

import msgspec

from carrel_schema.answers import Answer
from carrel_schema.constraints import (
    Constraint,
    DestinationPath,
    Name,
    ShortText,
    Text,
)
from carrel_schema.sections import BELOW, REVISION

AssetType = Literal["environment", "compute", "data-source"]
FIELDS_OF: Final[Mapping[AssetType, frozenset[str]]] = {
    "environment": frozenset({"image", "command", "environment", "working_dir", "routes"}),
    "compute": frozenset(
        {"gpus", "gpu_memory_bytes", "gpu_devices", "mig_profile", "gpu_types", "cpu_millicores"}
        | {"cpu_limit_millicores", "memory_bytes", "large_shm", "node_group"}
        | {"topology_required", "topology_preferred"}
    ),
    "data-source": frozenset(),
}
"""The fields of a request that an asset of a type may say."""
DataKind = Literal["folder", "claim", "git", "s3"]


class DataSource(msgspec.Struct, frozen=True, kw_only=True):
    """Data that work is given.

    Attributes:
        kind: ``folder`` of one machine; ``claim``: a volume claim of the project on a cluster, as
            NFS and other file systems are offered there; ``git``: a repository, fetched before the
            work begins; ``s3``: a bucket, which the work reads itself with the variables that it
            gets.
        source: the folder, ``CLAIM`` or ``CLAIM/FOLDER``, the repository's address, or
            ``s3://BUCKET/PREFIX``.
        destination: where work finds it; of git a folder of the task's. Empty: as for volumes.
        read_only: whether work may not write to it.
        revision: of git.
        secret: of git a password or SSH key, of S3 an access key.
        endpoint, region: of S3; empty: those of AWS.
    """

    kind: DataKind
    source: Annotated[str, Constraint(min_length=1, max_length=2048)]
    destination: DestinationPath = ""
    read_only: bool = True
    revision: Annotated[str, Constraint(max_length=255, pattern=REVISION)] = ""
    secret: Name | None = None
    endpoint: Annotated[str, Constraint(max_length=2048, pattern=r"^(https?://\S+)?$")] = ""
    region: ShortText = ""


class AssetFields(msgspec.Struct, frozen=True, kw_only=True):
    """An asset as it is written.

    Attributes:
        description: for people.
        fields: of a request, of an environment or a compute resource.
        data: of a data source.
        expected_version: refused unless this is the stored version; 0: it has to be new.
    """

    description: Annotated[Text, Constraint(max_length=1000)] = ""
    fields: Annotated[dict[ShortText, Any], Constraint(max_length=100)] = {}
    data: DataSource | None = None
    expected_version: int | None = None


class AssetOut(Answer, frozen=True, kw_only=True):
    """An asset as it is stored; ``scope`` in the form ``project/NAME``."""

    type: str
    name: str
    scope: str
    version: int = 0
    description: str = ""
    fields: Mapping[str, Any] = {}
    data: DataSource | None = None
    changed_at: float = 0.0
    changed_by: str = ""


class AssetList(Answer, frozen=True, kw_only=True):
    """Assets by type, from the widest scope to the narrowest."""

    items: Sequence[AssetOut] = ()


def problem_of(data: DataSource) -> tuple[str, str] | None:
    """Find what is wrong with a data source: (field, what would be right); else ``None``."""
    wrong = {
        "folder": (not data.source.startswith("/"), "an absolute path"),
        "claim": (data.source.startswith("/") or "://" in data.source, "CLAIM or CLAIM/FOLDER"),
        "git": ("://" not in data.source and "@" not in data.source, "a repository's address"),
        "s3": (not data.source.startswith("s3://"), "s3://BUCKET/PREFIX"),
    }[data.kind]
    if wrong[0]:
        return "data.source", wrong[1]
    if data.kind == "git" and not re.fullmatch(BELOW, data.destination):
        return "data.destination", "a folder of the task's, as data/words"
    return None
