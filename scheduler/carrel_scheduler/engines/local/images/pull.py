"""Pulls and unpacks one image: the program that the store starts, as root, for each pull.

It only enters the user's network and starts two sandboxes: one that fetches, which has a network
and no capabilities, and one that unpacks, which has no network and makes the folder its root. Both
see the machine's files read-only. In the end the files of the image are made root's.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from carrel_scheduler.engines.local.shim import linux
from carrel_scheduler.engines.local.shim.sandbox import KERNEL, NAMESPACES

PACKAGE: Final = "carrel_scheduler.engines.local.images"
ROOT: Final = "root"
NOBODY: Final = 65534


def sandboxed(asked: Any, folder: str, options: Sequence[str], program: Sequence[str]) -> list[str]:
    """The command of a program that sees the machine read-only, but for one folder."""
    return [
        *(asked["bubblewrap"], *NAMESPACES, "--ro-bind", "/", "/", *KERNEL),
        *("--bind", folder, folder, "--chdir", folder, "--cap-drop", "ALL", *options),
        *("--", sys.executable, "-P", "-m", f"{PACKAGE}.{program[0]}", *program[1:]),
    ]


def run(command: Sequence[str], request: str = "") -> dict[str, Any]:
    """Run the pull program, forward its progress, and return its answer."""
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        if process.stdin is None or process.stdout is None:  # both are pipes
            raise RuntimeError("no pipes")
        process.stdin.write(request)
        process.stdin.close()
        answer: dict[str, Any] = {}
        for line in process.stdout:
            answer = json.loads(line)
            if "total" in answer:
                sys.stdout.write(line)
                sys.stdout.flush()
    if process.returncode or "total" in answer:
        return {"failure": "unreachable", "text": f"pulling ended with {process.returncode}"}
    return answer


def pull(asked: Any, folder: str) -> dict[str, Any]:
    """Fetch and unpack into ``root`` of a folder."""
    binds = [part for source, target in asked["files"] for part in ("--ro-bind", source, target)]
    answer = run(sandboxed(asked, folder, binds, ["fetch"]), json.dumps(asked))
    if "layers" not in answer:
        return answer
    root = f"{folder}/{ROOT}"
    Path(root).mkdir(mode=0o755)
    os.chown(root, NOBODY, NOBODY)
    layers = [f"{folder}/layer-{number}" for number in range(answer["layers"])]
    rights = ["--unshare-net"]
    for name in ("CAP_SYS_CHROOT", "CAP_SETUID", "CAP_SETGID"):
        rights += ["--cap-add", name]
    program = ["unpack", root, str(asked["most_unpacked_bytes"]), *layers]
    unpacked = run(sandboxed(asked, folder, rights, program))
    if unpacked:
        return unpacked
    for layer in layers:
        Path(layer).unlink()
    _make_roots(root)
    return answer


def _make_roots(top: str) -> None:
    """Make root the owner of every file; also no bit is left that lends its rights."""
    os.lchown(top, 0, 0)
    Path(top).chmod(0o755)
    for folder, folders, names in os.walk(top):
        for name in (*folders, *names):
            os.lchown(f"{folder}/{name}", 0, 0)


def main() -> None:
    """Pull the image that standard input names; ends when its parent does."""
    linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
    asked = json.load(sys.stdin)
    if asked["network"]:
        linux.setns(os.open(asked["network"], os.O_RDONLY | os.O_CLOEXEC))
    sys.stdout.write(f"{json.dumps(pull(asked, asked['folder']))}\n")


if __name__ == "__main__":
    main()
