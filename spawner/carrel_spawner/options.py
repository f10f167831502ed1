"""A user's choice for a workspace: the choice, the offers, and the folders seen in it.

``option_checks`` makes a choice of what was sent. Folders and Python environments are checked there
for their form. Whether they exist and the user may read them shows where the workspace runs: the
engine refuses folders before anything begins, in a message that starts with the field; the
workspace's own start (``launch``) looks at the rest as the user and writes one line into its log,
which is read here.
"""

import json
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from typing_extensions import override

from carrel.models import Volume, Workload

_MARK: Final = "The workspace cannot start: "
_FIELDS: Final = ("volumes",)
ENVIRONMENT: Final = "CARREL_ENVIRONMENT"
"""Variable of a workspace: the prefix of the Python environment that its notebooks run in."""
FOLDERS: Final = "CARREL_FOLDERS"
"""Variable of a workspace: its folders that are seen in the home, JSON of ``[source, name]``."""
GROUP_PREFIX: Final = "project-"
SIZES: Final = ("gpus", "gpu_memory_gib", "cpu", "memory_gib")
"""Fields that a compute resource says."""
BYTES_PER_GIB: Final = 1024**3
_UNITS: Final = {
    "cpu_millicores": "cpu",
    "memory_bytes": "memory_gib",
    "gpu_memory_bytes": "gpu_memory_gib",
}
"""Fields of a choice by those of the scheduler's API."""


class BadOption(ValueError):  # noqa: N818 - reads as the fact it states
    """A choice that cannot be used: names the field, the value and what would be right."""

    def __init__(self, field: str, value: object, expected: str) -> None:
        super().__init__(f"{field} is {value!r}; it should be {expected}.")
        self.field, self.value, self.expected = field, value, expected


def log_line(error: BadOption) -> str:
    """The line of the log."""
    return f"{_MARK}{error}"


def logged_error(workload: Workload, log: str) -> str:
    """The unusable choice, from the workspace's messages; empty for another cause."""
    for task in workload.status.tasks:
        field, sign, rest = task.message.partition("=")
        if sign and field in _FIELDS:
            return f"{field} cannot be had: {rest}."
    marked = [text for text in log.splitlines() if text.startswith(_MARK)]
    return marked[-1].removeprefix(_MARK) if marked else ""


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder that is seen at ``destination`` below the home."""

    source: str
    destination: str
    read_only: bool = False

    @override
    def __str__(self) -> str:
        return f"{self.source}:{self.destination}{':ro' if self.read_only else ''}"

    def as_dict(self) -> dict[str, Any]:
        """The folder in JSON form."""
        return asdict(self)


def of_workload(workload: Workload) -> tuple[str, tuple[Folder, ...]]:
    """The environment and the folders that a workload of the queue was asked for with."""
    return workload.spec.environment.get(ENVIRONMENT, ""), of_volumes(workload.spec.volumes)


def of_volumes(volumes: Iterable[Volume]) -> tuple[Folder, ...]:
    """Folders from the scheduler's volumes."""
    return tuple(Folder(one.source, one.destination, one.read_only) for one in volumes)


def launch_variables(prefix: str, seen: Sequence[Folder]) -> dict[str, str]:
    """The variables for the workspace's own start."""
    links = json.dumps([[one.source, one.destination] for one in seen]) if seen else ""
    told = {ENVIRONMENT: prefix, FOLDERS: links}
    return {name: text for name, text in told.items() if text}


@dataclass(frozen=True, slots=True)
class Sizes:
    """Amounts taken when nothing is chosen: GPUs, processor cores, memory in GiB."""

    gpus: int = 0
    cpu: float = 0.5
    memory_gib: float = 2.0


@dataclass(frozen=True, slots=True)
class Most:
    """The largest amounts that may be chosen: GPUs, processor cores, memory in GiB."""

    gpus: int = 1024
    cpu: float = 1024.0
    memory_gib: float = 65536.0


@dataclass(frozen=True, slots=True)
class WorkspaceProfile:
    """A kind of workspace that the admin offers; ``slug`` is what the choice says.

    Attributes:
        environment: prefix of the Python environment of its notebooks; empty: Carrel's own.
        volumes: folders that every workspace of this kind sees.
    """

    slug: str
    title: str
    description: str = ""
    environment: str = ""
    volumes: Sequence[Folder] = ()


@dataclass(frozen=True, slots=True)
class WorkspaceChoices:
    """The choices that this user may make. Without profiles there is one kind of workspace only.

    ``folders``: whether folders of one's own choice can be seen in it.
    """

    defaults: Sizes = Sizes()
    most: Most = Most()
    profiles: Sequence[WorkspaceProfile] = ()
    folders: bool = True

    def profile(self, slug: str) -> WorkspaceProfile:
        """A kind that is offered; one that says nothing when there is none of that name."""
        return next(
            (one for one in self.profiles if one.slug == slug), WorkspaceProfile(slug, slug)
        )


@dataclass(frozen=True, slots=True)
class ChosenAssets:
    """Assets that a workspace is put together from, by name; empty: none."""

    environment: str = ""
    compute: str = ""
    data: tuple[str, ...] = ()

    @classmethod
    def of(cls, workload: Workload) -> "ChosenAssets":
        """The assets of a workload."""
        named = workload.spec.assets
        if named is None:
            return cls()
        return cls(named.environment or "", named.compute or "", tuple(named.data_sources))

    def __bool__(self) -> bool:
        return bool(self.environment or self.compute or self.data)

    def fields(self) -> dict[str, Any]:
        """The assets as fields of a request."""
        named = {"environment": self.environment or None, "compute": self.compute or None}
        return named | {"data_sources": list(self.data)}


@dataclass(frozen=True, slots=True)
class WorkspaceChoice:
    """A checked choice. ``claim`` names a workload of the queue that has got its turn.

    ``gpus`` below 1 is a share of one GPU; ``gpu_memory_gib`` is memory of one that it shares, in
    place of GPUs. ``environment`` and ``volumes`` are the user's own, beside what the profile
    brings. ``said`` are the sizes that were chosen beside a compute resource, which win over it.
    """

    project: str
    gpus: float
    cpu: float
    memory_gib: float
    claim: str = ""
    profile: str = ""
    environment: str = ""
    volumes: tuple[Folder, ...] = ()
    gpu_memory_gib: float = 0.0
    assets: ChosenAssets = ChosenAssets()
    said: frozenset[str] = frozenset()

    @property
    def cpu_millicores(self) -> int:
        """Processor share in thousandths of a core."""
        return round(self.cpu * 1000)

    @property
    def memory_bytes(self) -> int:
        """Memory in bytes."""
        return round(self.memory_gib * BYTES_PER_GIB)

    @property
    def gpu_memory_bytes(self) -> int:
        """Memory of the GPU that it shares, in bytes."""
        return round(self.gpu_memory_gib * BYTES_PER_GIB)

    def options(self) -> dict[str, Any]:
        """The choice as the Hub stores it for the next start; a claim is good for one only."""
        chosen: dict[str, Any] = {
            "project": self.project,
            "gpus": round(self.gpus) if self.gpus == round(self.gpus) else self.gpus,
            "cpu": self.cpu,
            "memory_gib": self.memory_gib,
        }
        more = {
            "gpu_memory_gib": self.gpu_memory_gib,
            "profile": self.profile,
            "environment": self.environment,
            "volumes": [one.as_dict() for one in self.volumes],
            "environment_asset": self.assets.environment,
            "compute": self.assets.compute,
            "data": list(self.assets.data),
        }
        if self.assets.compute:
            chosen = {name: value for name, value in chosen.items() if self._says(name)}
        return chosen | {name: value for name, value in more.items() if value}

    def sizes(self) -> dict[str, Any]:
        """The sizes to send to the scheduler: those that no compute resource sets."""
        told = {
            "gpus": self.gpus,
            "gpu_memory_bytes": self.gpu_memory_bytes,
            "cpu_millicores": self.cpu_millicores,
            "memory_bytes": self.memory_bytes,
        }
        return {name: value for name, value in told.items() if self._says(_UNITS.get(name, name))}

    def _says(self, field: str) -> bool:
        return not self.assets.compute or field not in SIZES or field in self.said

    @classmethod
    def of(cls, workload: Workload, offer: WorkspaceChoices, profile: str) -> "WorkspaceChoice":
        """The choice with which a workload was submitted."""
        spec = workload.spec
        gib = spec.memory_bytes / BYTES_PER_GIB
        sizes = cls(workload.project, spec.gpus, spec.cpu_millicores / 1000, gib)
        return sizes.queued_as(workload, offer, profile)

    def with_profile(self, offer: WorkspaceChoices) -> "WorkspaceChoice":
        """The choice with the additions of its profile, as it is run."""
        kind = offer.profile(self.profile)
        own = {one.destination for one in self.volumes}
        brought = tuple(one for one in kind.volumes if one.destination not in own)
        return replace(
            self,
            environment=self.environment or kind.environment,
            volumes=(*brought, *self.volumes),
        )

    def queued_as(
        self, workload: Workload, offer: WorkspaceChoices, profile: str
    ) -> "WorkspaceChoice":
        """The choice with what it was queued with: the call on its turn names only its size."""
        kind = offer.profile(profile)
        environment, volumes = of_workload(workload)
        shared = workload.spec.gpu_memory_bytes / BYTES_PER_GIB or _instance_gib(workload)
        own = _own_places(workload)
        return replace(
            self,
            gpus=0 if shared else self.gpus,
            gpu_memory_gib=shared,
            profile=profile,
            environment="" if environment == kind.environment else environment,
            volumes=tuple(
                one for one in volumes if one not in kind.volumes and one.destination in own
            ),
            assets=ChosenAssets.of(workload),
            said=frozenset(),
        )


def _own_places(workload: Workload) -> Collection[str]:
    """Destinations of the folders that its request names; others came with its data sources."""
    if not ChosenAssets.of(workload).data:
        return [one.destination for one in workload.spec.volumes]
    return [name for _, name in json.loads(workload.spec.environment.get(FOLDERS) or "[]")]


def projects_of(groups: Collection[str]) -> list[str]:
    """The projects that these Hub groups make one a member of, in alphabetical order."""
    return sorted(
        group.removeprefix(GROUP_PREFIX)
        for group in groups
        if group.startswith(GROUP_PREFIX) and group != GROUP_PREFIX
    )


_INSTANCE: Final = re.compile(r"[0-9]g[.]([0-9]+)gb")
_SURE_PART: Final = 0.87
"""The least size of an instance in GiB, as a part of the GB in the name of its MIG profile."""


def _instance_gib(workload: Workload) -> float:
    """Memory by which a workspace gets a MIG instance of its size again; 0 for one without.

    A share of a GPU became an instance where GPUs are divided, and the share is not kept.
    """
    found = _INSTANCE.match(workload.spec.mig_profile)
    return float(found[1]) * _SURE_PART if found else 0.0
