"""Work that is submitted from a workspace starts in the folder that its user is in.

On one machine jobs see the folders of a workspace. On a cluster they are volumes, which jobs see
where the spawner says so (``CARREL_VOLUMES``); in any other folder a job would find nothing, so it
starts in one of its own, and ``hint_unmounted`` tells its user.
"""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Final

VOLUMES: Final = "CARREL_VOLUMES"
"""Volumes of a workspace that jobs may see, too: a JSON list of objects as in a request."""


def in_workspace() -> bool:
    """Whether this process runs in a workspace."""
    return "JUPYTERHUB_API_TOKEN" in os.environ


def set_working_dir(
    body: dict[str, Any], folder: str | Path, environ: Mapping[str, str] | None = None
) -> None:
    """Set a request's working folder to one of this workspace, unless it has one.

    In a folder that jobs do not see nothing is changed.
    """
    if not body.get("working_dir") and mount_folder(body, folder, environ):
        body["working_dir"] = str(folder)


def mount_folder(
    body: dict[str, Any], folder: str | Path, environ: Mapping[str, str] | None = None
) -> bool:
    """Add the volumes that hold a folder of this workspace; whether jobs can see the folder."""
    volumes = _volumes(environ)
    if _is_of_task(folder, environ):
        return False
    if volumes is None:
        return True
    if not _is_in(folder, volumes):
        return False
    asked = list(body.get("volumes", ()))
    taken = {one.get("destination") for one in asked}
    body["volumes"] = asked + [one for one in volumes if one["destination"] not in taken]
    return True


def hint_unmounted(folder: str | Path, environ: Mapping[str, str] | None = None) -> str:
    """A hint for a folder of this workspace that jobs do not see; empty: they do."""
    volumes = _volumes(environ)
    if volumes is None or _is_in(folder, volumes):
        return ""
    seen = ", ".join(f"`{one['destination']}`" for one in volumes)
    better = f"Work in {seen}, which they see, or name" if seen else "Name"
    return (
        f"Jobs do not see `{folder}`, a volume of this workspace alone: the job starts in an empty "
        f"folder of its own. {better} a volume of the project with --volume CLAIM:PATH."
    )


def _volumes(environ: Mapping[str, str] | None) -> list[dict[str, Any]] | None:
    """The volumes that jobs may see; ``None`` on one machine, where they see everything."""
    value = (os.environ if environ is None else environ).get(VOLUMES)
    return None if value is None else list(json.loads(value))


def _is_of_task(folder: str | Path, environ: Mapping[str, str] | None) -> bool:
    """Whether it is the own folder of the job that runs here, which other jobs do not see."""
    uid = (os.environ if environ is None else environ).get("CARREL_WORKLOAD_UID")
    return bool(uid) and uid in PurePosixPath(folder).parts


def _is_in(folder: str | Path, volumes: Sequence[Mapping[str, Any]]) -> bool:
    return any(PurePosixPath(folder).is_relative_to(one["destination"]) for one in volumes)
