"""The images of ``images/`` as OCI archives, built by buildah without a daemon.

Layers stay in a storage of their own in the user's cache, so that a change of the product builds
only the last step. An archive is named by its key; older ones of the same image are removed.
"""

import fcntl
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from k8s.cluster.images import base, context, pip_settings
from k8s.cluster.waiting import NotReady

IMAGES: Final = ("trainer", "workspace", "scheduler", "hub")
BUILD_SECONDS: Final = 1200.0
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Image:
    """An image that pods can name once its archive is loaded."""

    name: str
    archive: Path


def home(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder of archives and layers."""
    cache = Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "carrel" / "images"


def build(wanted: Iterable[str], say: Say) -> dict[str, Image]:
    """Images by their folder's name, ``base`` among them: ready ones, else built now.

    Args:
        wanted: names of folders of ``images/``, or ``base``.
        say: told what is being built, a line at a time.

    Raises:
        NotReady: with the end of what the build said.
    """
    folder = home()
    folder.mkdir(parents=True, exist_ok=True)
    made = {image: _named(image, folder) for image in wanted}
    if all(one.archive.exists() for one in made.values()):
        return made
    with (folder / "lock").open("w") as lock, tempfile.TemporaryDirectory() as temporary:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _build(folder, Path(temporary), made, say)
    return made


def _build(folder: Path, workshop: Path, made: Mapping[str, Image], say: Say) -> None:
    missing = [image for image in made if not made[image].archive.exists()]
    _buildah(folder, "rm", "--all")  # what a build that was killed left mounted
    _base(folder, say)
    if set(missing) - {"base"}:
        context.gather(workshop / "context")
        pip_settings.write(workshop / "pip.conf")
    for image in missing:
        say(f"Building the image {image}")
        if image != "base":
            _bud(folder, workshop, image, made[image].name)
        _export(folder, image, made[image])


def _named(image: str, folder: Path) -> Image:
    name = base.name() if image == "base" else f"localhost/carrel-{image}:{context.key(image)}"
    return Image(name, folder / f"{name.rpartition('/')[2].replace(':', '-')}.oci.tar")


def _base(folder: Path, say: Say) -> None:
    if _buildah(folder, "images", "--quiet", "--filter", f"reference={base.name()}"):
        return
    say("Building the images' base")
    files = base.archive(folder)
    container = _buildah(folder, "from", "scratch")
    _buildah(folder, "add", container, str(files), "/")
    _buildah(folder, "commit", "--rm", container, base.name())
    files.unlink()


def _bud(folder: Path, workshop: Path, image: str, name: str) -> None:
    """Build one; steps run in a chroot, with the machine's network and certificates."""
    certificates = [f"--volume={place}:{place}:ro" for place in pip_settings.mounts()]
    _buildah(
        folder,
        "bud",
        "--isolation=chroot",
        "--layers",
        "--pull-never",
        "--format=oci",
        f"--build-arg=BASE={base.name()}",
        f"--secret=id=pip,src={workshop / 'pip.conf'}",
        *certificates,
        f"--file={workshop / 'context' / 'images' / image / 'Dockerfile'}",
        f"--tag={name}",
        str(workshop / "context"),
    )


def _export(folder: Path, image: str, made: Image) -> None:
    older = sorted(folder.glob(f"carrel-{image}-*.oci.tar"), key=lambda file: file.stat().st_mtime)
    for old in older[:-1]:  # another run may be about to load the last one
        old.unlink()
    unfinished = made.archive.with_suffix(".building")
    unfinished.unlink(missing_ok=True)
    target = f"oci-archive:{unfinished}:{made.name}"
    quick = ("--compression-format=zstd", "--compression-level=1")
    _buildah(folder, "push", "--quiet", *quick, made.name, target)
    unfinished.replace(made.archive)
    for name in _buildah(folder, "images", "--format={{.Name}}:{{.Tag}}").splitlines():
        if name.startswith(f"localhost/carrel-{image}:") and name != made.name:
            _buildah(folder, "rmi", name)


def _buildah(folder: Path, *words: str) -> str:
    storage = [f"--root={folder / 'storage'}", f"--runroot={folder / 'run'}"]
    done = subprocess.run(
        ["buildah", *storage, "--storage-driver=overlay", *words],
        check=False,
        capture_output=True,
        text=True,
        timeout=BUILD_SECONDS,
    )
    if done.returncode:
        raise NotReady(f"buildah {words[0]} failed: {(done.stdout + done.stderr)[-3000:]}")
    return done.stdout.strip()
