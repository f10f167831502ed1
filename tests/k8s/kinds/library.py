"""MPICH as a volume of a project, as an admin provides it."""

import shutil
from importlib.metadata import files
from pathlib import Path
from typing import Any, Final

MPI: Final = {
    "bin": ("mpirun", "hydra_pmi_proxy"),
    "lib": ("libmpi.so.12", "mpich"),
    "lib/python3.11/site-packages": ("mpi4py",),
}


def provide(folder: Path, namespace: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Put it into a folder; the manifests of the volume ``mpi`` and its claim."""
    base = Path(str(next(one for one in files("mpich") or () if one.name == "mpirun").locate()))
    for below, names in MPI.items():
        for name in names:
            source = base.parents[1] / below / name
            target = folder / below / name
            target.parent.mkdir(parents=True, exist_ok=True)
            (shutil.copytree if source.is_dir() else shutil.copy)(source, target)
    folder.chmod(0o755)
    common: dict[str, Any] = {"accessModes": ["ReadOnlyMany"], "storageClassName": ""}
    where = {"namespace": namespace, "name": "mpi"}
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"{namespace}-mpi"},
        "spec": {
            **common,
            "capacity": {"storage": "1Gi"},
            "hostPath": {"path": str(folder)},
            "claimRef": where,
        },
    }
    asked = {"volumeName": f"{namespace}-mpi", "resources": {"requests": {"storage": "1Gi"}}}
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": where,
        "spec": {**common, **asked},
    }
    return volume, claim
