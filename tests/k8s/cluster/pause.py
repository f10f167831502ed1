"""Images of a single program, as OCI archives, and the one that holds pods' namespaces."""

import gzip
import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from k8s.cluster.containerd import PAUSE

ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
"""Names of the kernel's in those of images."""
_MEDIA: Final = "application/vnd.oci.image"


def archive(program: Path, to: Path) -> Path:
    """Write the image of ``pause``: its program alone, run as nobody."""
    layer = _tar({program.name: program.read_bytes()}, mode=0o755)
    packed = gzip.compress(layer, mtime=0)
    configuration = {
        "architecture": ARCHITECTURES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "config": {"Entrypoint": [f"/{program.name}"], "User": "65535:65535"},
        "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
    }
    about, described = _json(f"{_MEDIA}.config.v1+json", configuration)
    content = _described(f"{_MEDIA}.layer.v1.tar+gzip", packed)
    manifest, listed = _json(
        f"{_MEDIA}.manifest.v1+json",
        {"schemaVersion": 2, "config": described, "layers": [content]},
    )
    listed["annotations"] = {"io.containerd.image.name": PAUSE}
    index = {"schemaVersion": 2, "manifests": [listed]}
    files = {
        "oci-layout": b'{"imageLayoutVersion": "1.0.0"}',
        "index.json": json.dumps(index).encode(),
        **{_place(blob): blob for blob in (packed, about, manifest)},
    }
    to.write_bytes(_tar(files))
    return to


def _json(media: str, value: Mapping[str, Any]) -> tuple[bytes, dict[str, Any]]:
    blob = json.dumps(value).encode()
    return blob, _described(media, blob)


def _described(media: str, blob: bytes) -> dict[str, Any]:
    return {"mediaType": media, "digest": _digest(blob), "size": len(blob)}


def _digest(blob: bytes) -> str:
    return f"sha256:{hashlib.sha256(blob).hexdigest()}"


def _place(blob: bytes) -> str:
    return _digest(blob).replace("sha256:", "blobs/sha256/")


def _tar(files: Mapping[str, bytes], mode: int = 0o644) -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            entry.mode = mode
            tar.addfile(entry, io.BytesIO(content))
    return written.getvalue()
