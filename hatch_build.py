"""Compiles the limiter of GPU memory into a wheel (scheduler/carrel_scheduler/node/limiter).

By default with the machine's C compiler: the wheel then runs on machines with the same or a later
glibc. `CARREL_BUILD_WITH=zig` takes that of the wheel ziglang, for glibc 2.17 and later, and
the wheel is tagged manylinux. On a machine without a compiler the wheel has no library and says so.
"""

import importlib.util
import os
import platform
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

LIMITER = "scheduler/carrel_scheduler/node/limiter"


class LimiterBuildHook(BuildHookInterface):
    """See the module."""

    def dependencies(self) -> list[str]:
        """The compiler, where the builder asks for that of a wheel."""
        return ["ziglang"] if self._with_zig() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and tag the wheel for the machines on which the library runs."""
        if self.target_name != "wheel" or platform.system() != "Linux":
            return
        library = self._load()
        target = Path(self.root, LIMITER, library.LIBRARY.name)
        with_zig = self._with_zig()
        try:
            command = library.zig_command() if with_zig else library.compiler_command()
            library.compile_library(target, command)
        except library.NoLibrary as error:
            if with_zig:
                raise
            self.app.display_warning(f"the wheel has no limiter of GPU memory: {error}")
            return
        if version == "editable":
            return
        build_data["artifacts"].append(f"{LIMITER}/{target.name}")
        build_data["pure_python"] = False
        system = "manylinux2014" if with_zig else "linux"
        build_data["tag"] = f"py3-none-{system}_{platform.machine()}"

    def _with_zig(self) -> bool:
        asked = os.environ.get("CARREL_BUILD_WITH", "")
        if asked not in ("", "zig"):
            raise ValueError(f"CARREL_BUILD_WITH={asked!r}: `zig` or nothing is right")
        return asked == "zig"

    def _load(self) -> Any:
        """The module that compiles, without what else the package needs."""
        path = Path(self.root, LIMITER, "library.py")
        spec = importlib.util.spec_from_file_location("carrel_limiter_library", path)
        if spec is None or spec.loader is None:
            raise FileNotFoundError(path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        return module
