"""Compiles the C files of tests: with the machine's C compiler, else with the wheel ziglang."""

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def compiler() -> list[str]:
    """The command of a C compiler; an error when the machine has none."""
    for name in ("gcc", "cc", "clang"):
        if found := shutil.which(name):
            return [found]
    if importlib.util.find_spec("ziglang"):
        return [sys.executable, "-m", "ziglang", "cc"]
    message = "the tests of GPUs need a C compiler: install gcc, or `pip install ziglang`"
    raise FileNotFoundError(message)


def build(source: Path, target: Path, *flags: str) -> Path:
    """Compiles one file with all warnings as errors; a shared library if the target ends so."""
    shared = ["-shared", "-fPIC"] if ".so" in target.name else []
    command = [*compiler(), "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", *shared]
    target.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run([*command, f"-I{HERE}", "-o", target, source, *flags], check=True)
    return target
