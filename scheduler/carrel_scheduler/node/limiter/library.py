"""The limiter's library: compiled when a wheel is built, else when it is first needed.

It is C without dependencies (`source/`), preloaded into the programs of tasks that have a fraction
of a GPU. A wheel brings it compiled; an editable install, or a wheel that was built without a
compiler, compiles it once with the machine's C compiler or with the wheel ziglang. The build hook
loads this file by its path, so it imports nothing but the standard library.
"""

import hashlib
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).parent / "source"
LIBRARY: Final = Path(__file__).parent / "libcarrel_gpu_limit.so"
MANYLINUX: Final = "2.17"
"""The oldest glibc that a library compiled by zig runs with; gcc takes that of the machine."""
_FLAGS: Final = (
    *("-std=gnu11", "-O2", "-Wall", "-fPIC", "-shared", "-fvisibility=hidden", "-pthread"),
    *("-fno-sanitize=undefined", "-s"),
)


class NoLibrary(Exception):  # noqa: N818 - an outcome, not a fault
    """The library is missing and cannot be compiled; the message has the cause."""


def zig_command() -> list[str]:
    """The C compiler of the wheel ziglang for old versions of glibc; empty when not installed."""
    if importlib.util.find_spec("ziglang") is None:
        return []
    target = f"{platform.machine()}-linux-gnu.{MANYLINUX}"
    return [sys.executable, "-m", "ziglang", "cc", "-target", target]


def compiler_command() -> list[str]:
    """The machine's C compiler, else zig's; empty without one."""
    found = next((path for name in ("gcc", "cc", "clang") if (path := shutil.which(name))), None)
    return [found] if found else zig_command()


def sources_digest() -> str:
    """A short digest of the library's sources, which is written into the library, too."""
    found = hashlib.sha256()
    for path in sorted(SOURCE.iterdir()):
        found.update(path.read_bytes())
    return f"sources:{found.hexdigest()}"


def compile_library(target: Path, command: list[str]) -> None:
    """Compile the sources to a file, which is replaced as a whole. Raises `NoLibrary`."""
    if not command:
        raise NoLibrary("no C compiler is installed; install gcc, or `pip install ziglang`")
    sources = [str(path) for path in sorted(SOURCE.glob("*.c"))]
    try:
        descriptor, fresh = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        os.close(descriptor)
    except OSError as error:
        raise NoLibrary(f"{target.parent} cannot be written: {error.strerror}") from error
    try:
        done = subprocess.run(
            [
                *command,
                *_FLAGS,
                f'-DCARREL_SOURCES="{sources_digest()}"',
                *("-o", fresh, *sources, "-ldl"),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise NoLibrary(f"{command[0]} could not compile it: {done.stderr.strip()[-500:]}")
        Path(fresh).chmod(0o755)
        Path(fresh).replace(target)
    finally:
        Path(fresh).unlink(missing_ok=True)


def find_library(library: Path = LIBRARY) -> Path:
    """The compiled library; compiled now if it is missing or its sources have changed.

    Raises `NoLibrary`.
    """
    if platform.system() != "Linux":
        raise NoLibrary("GPU memory is enforced on Linux only")
    if not library.exists() or sources_digest().encode() not in library.read_bytes():
        compile_library(library, compiler_command())
    return library
