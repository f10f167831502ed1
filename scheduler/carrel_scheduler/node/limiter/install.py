"""The init container of a pod with a share of a GPU: prepares the limiter's files in its volume.

``python3 -m carrel_scheduler.node.limiter.install FOLDER``; which GPUs, and how much of each, the
environment says (``carrel_schema.shared_gpus``). An image without the library, or a share of which
nobody knows how much memory it is, leaves files that limit nothing: the work starts all the same,
and the log of this container says so. It imports little: it runs before every such pod.
"""

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from carrel_scheduler.node.limiter.folder import FOLDER, limits_text, prepare_usage
from carrel_scheduler.node.limiter.library import LIBRARY, NoLibrary, find_library


def install(folder: Path, env: Mapping[str, str]) -> str:
    """Write the files; returns why limits cannot be enforced, empty on success."""
    for old in ("limits", "usage", "preload", LIBRARY.name):  # of a container that was restarted
        (folder / old).unlink(missing_ok=True)
    prepare_usage(folder / "usage", None)
    (folder / "usage").chmod(0o666)
    uuids = [uuid for uuid in env.get("CARREL_GPU_UUIDS", "").split(",") if uuid]
    memory = env.get("CARREL_GPU_MEMORY_MIB", "")
    known = uuids and memory.isdecimal() and int(memory)
    trouble = "" if known else "nobody knows how much memory it may have"
    library = Path(os.devnull)
    if not trouble:
        try:
            library = find_library()
        except NoLibrary as error:
            trouble = str(error)
    limits = limits_text(dict.fromkeys(uuids, int(memory))) if not trouble else ""
    (folder / "limits").write_text(limits)
    (folder / "preload").write_text("" if trouble else f"{FOLDER}/{LIBRARY.name}\n")
    shutil.copyfile(library, folder / LIBRARY.name)
    for name, mode in (("limits", 0o444), ("preload", 0o444), (LIBRARY.name, 0o555)):
        (folder / name).chmod(mode)
    return trouble


def main() -> None:
    """Entry point."""
    trouble = install(Path(sys.argv[1]), os.environ)
    if trouble:
        sys.stderr.write(f"GPU memory of this pod is not limited: {trouble}\n")


if __name__ == "__main__":
    main()
