"""Build contexts of images: their own files and the product's wheel.

The key of an image is a hash of what it is made of and uses, so that it is built again when, and
only when, something of that changes: a new scheduler does not change a workspace, though the wheel
has both.
"""

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Final

from k8s.cluster.images import base
from k8s.cluster.waiting import NotReady

REPOSITORY: Final = Path(__file__).parents[4]
SOURCES: Final = ("hub", "spawner", "scheduler", "extensions")
USED: Final = {
    "trainer": ("extensions",),
    "workspace": ("extensions",),
    "scheduler": ("scheduler", "extensions/carrel_schema", "extensions/carrel_process"),
    "hub": ("hub", "spawner", "extensions"),
}
"""What of the product each image runs."""
WHEEL_SECONDS: Final = 300.0


def key(image: str) -> str:
    """The key of the image as the repository has it now."""
    whole = hashlib.sha256(base.name().encode())
    parts = [REPOSITORY / "images" / image, *(REPOSITORY / part for part in USED[image])]
    for file in (REPOSITORY / "pyproject.toml", *chain.from_iterable(map(_files, parts))):
        whole.update(str(file.relative_to(REPOSITORY)).encode())
        whole.update(hashlib.sha256(file.read_bytes()).digest())
    return whole.hexdigest()[:12]


def gather(to: Path) -> Path:
    """Fill a folder with what all images' builds may see. Raises ``NotReady``."""
    shutil.copytree(REPOSITORY / "images", to / "images")
    source = to / "source"
    for file in _product():
        copy = source / file.relative_to(REPOSITORY)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(to / "dist")]
    done = subprocess.run(
        [*command, str(source)],
        check=False,
        capture_output=True,
        text=True,
        timeout=WHEEL_SECONDS,
    )
    shutil.rmtree(source)
    if done.returncode:
        raise NotReady(f"the wheel was not built: {done.stderr[-2000:]}")
    return to


def _product() -> Iterator[Path]:
    """The files that the wheel is made of, in one order."""
    for name in ("LICENSE", "README.md", "pyproject.toml", "hatch_build.py"):
        yield REPOSITORY / name
    for name in SOURCES:
        yield from _files(REPOSITORY / name)


def _files(folder: Path) -> Iterator[Path]:
    for file in sorted(folder.rglob("*")):
        if file.is_file() and "__pycache__" not in file.parts:
            yield file
