"""Assets of a workspace: the form's choices, and what the scheduler made of them.

The scheduler alone finds assets, checks who may use them, and applies policies to the result. Its
answer to a dry run is checked here against what the spawner offers; the sizes that were checked are
then asked for by themselves, so an asset that is changed in between changes nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any, Final

from carrel.models import Project, Volume, Workload
from carrel_schema.governance.assets import AssetOut
from carrel_schema.governance.secrets import references
from carrel_schema.scopes import scopes_over
from carrel_spawner import options
from carrel_spawner.choices import option_checks
from carrel_spawner.options import BadOption, Folder, WorkspaceChoice, WorkspaceChoices

FIELD_OF: Final[Mapping[str, str]] = {
    "environment": "environment_asset",
    "compute": "compute",
    "data-source": "data",
}
"""Fields of the start form by types of assets."""


@dataclass(frozen=True, slots=True)
class AssetChoice:
    """An asset to choose: its name and text."""

    name: str
    text: str


def offered(
    found: Iterable[AssetOut], projects: Sequence[Project], user: str, offer: WorkspaceChoices
) -> dict[str, list[AssetChoice]]:
    """The assets that a user may choose in these projects, by field; without empty fields."""
    scopes = {
        str(scope)
        for one in projects
        for scope in scopes_over(project=one.name, department=one.department or "", user=user)
    }
    by_field: dict[str, dict[str, AssetChoice]] = {}
    for one in found:
        field = FIELD_OF.get(one.type, "")
        if one.scope not in scopes or not field or (field == "data" and not offer.folders):
            continue
        about = f": {one.description}" if one.description else ""
        where = "" if one.scope.startswith("user/") else f" ({one.scope})"
        by_field.setdefault(field, {})[one.name] = AssetChoice(
            one.name, f"{one.name}{about}{where}"
        )
    return {
        field: sorted(named.values(), key=lambda one: one.name) for field, named in by_field.items()
    }


def put_together(
    choice: WorkspaceChoice, draft: Workload, offer: WorkspaceChoices
) -> WorkspaceChoice:
    """The choice with the sizes and the folders of what it became. Raises ``BadOption``."""
    spec, most, named = draft.spec, offer.most, choice.assets
    gpus = max(spec.gpus, spec.gpu_devices if spec.gpu_devices > 1 else 0)
    gib = spec.memory_bytes / options.BYTES_PER_GIB
    for asked, bound, words in (
        (gpus, most.gpus, "GPUs"),
        (spec.cpu_millicores / 1000, most.cpu, "cores"),
        (gib, most.memory_gib, "GiB of memory"),
    ):
        if asked > bound:
            raise BadOption("compute", named.compute, f"one with at most {bound:g} {words}")
    if offer.folders and spec.image:
        right = "one without an image: a workspace of one machine runs in a Python environment"
        raise BadOption("environment_asset", named.environment, right)
    if not offer.folders and spec.gpu_devices > 1:
        right = "one without shares of several GPUs, which pods of the Hub lack"
        raise BadOption("compute", named.compute, right)
    if not offer.folders and references(spec.environment):
        right = "one without secrets: pods of the Hub are given none"
        raise BadOption("environment_asset", named.environment, right)
    return replace(
        choice,
        gpus=0 if spec.gpu_memory_bytes else spec.gpus,
        gpu_memory_gib=spec.gpu_memory_bytes / options.BYTES_PER_GIB,
        cpu=spec.cpu_millicores / 1000,
        memory_gib=gib,
        volumes=folders_of(draft),
    )


def folders_of(workload: Workload) -> tuple[Folder, ...]:
    """The folders of a workload, those of data sources among them, as they are seen in the home.

    Raises ``BadOption`` for two of one name.
    """
    return option_checks.parse_folders([_in_home(one) for one in workload.spec.volumes])


def _in_home(volume: Volume) -> dict[str, Any]:
    """A volume with a name below the home: the last part of an absolute destination."""
    where = volume.destination or volume.source
    name = PurePosixPath(where).name if where.startswith("/") else where
    return {"source": volume.source, "destination": name, "read_only": volume.read_only}


def checked_sizes(draft: Workload) -> dict[str, Any]:
    """The sizes of what a choice became, to be asked for as they were checked."""
    spec = draft.spec
    shared = spec.gpu_memory_bytes or spec.mig_profile
    return {
        "gpus": 0 if shared else spec.gpus,
        "gpu_memory_bytes": spec.gpu_memory_bytes,
        "gpu_devices": spec.gpu_devices,
        "mig_profile": spec.mig_profile,
        "cpu_millicores": spec.cpu_millicores,
        "memory_bytes": spec.memory_bytes,
    }
