"""Starts a job in the code that travels with it: ``code.py COMMAND...``; a file of its tasks.

It lies in ``.carrel`` of the task's folder beside ``code.json``, which says what to fetch: an
uploaded folder, by its digest, or a revision of a Git repository. The files are fetched with the
task's own token and made with the rights of the task's user, beside those that came with the
request, which are kept; then the command replaces this process. Needs Python alone, since it also
runs in images without Carrel.
"""

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any, BinaryIO, Final
from urllib.parse import urlsplit

CHUNK_BYTES: Final = 2**20
PAUSE_SECONDS: Final = 1.0
TRIES: Final = 5
TIMEOUT_SECONDS: Final = 60.0
NOT_FETCHED, NOT_EXECUTABLE, NOT_FOUND = 125, 126, 127


class CodeMissing(Exception):  # noqa: N818 - what happened
    """The code is not here; the message says why."""


def main(command: Sequence[str]) -> None:
    """Fetch the code, enter it and become the command."""
    asked = json.loads(Path(__file__).with_name("code.json").read_text(encoding="utf-8"))
    folder = Path.cwd()
    try:
        if asked["git"]:
            clone(asked["git"], asked["revision"], folder)
        else:
            download(asked["digest"], folder)
    except (CodeMissing, OSError, HTTPException) as error:
        fail(NOT_FETCHED, f"the code of the job could not be fetched: {error}")
    try:
        os.execvp(command[0], list(command))  # noqa: S606 - a list, no shell
    except FileNotFoundError:
        fail(NOT_FOUND, f"{command[0]}: command not found")
    except OSError as error:
        fail(NOT_EXECUTABLE, f"{command[0]}: {error.strerror}")


def fail(code: int, why: str) -> None:
    """End with a line in the log."""
    print(f"carrel: {why}", file=sys.stderr, flush=True)  # noqa: T201 - the log of the job
    sys.exit(code)


def clone(url: str, revision: str, folder: Path) -> None:
    """Check a revision of a Git repository out. Raises ``CodeMissing``."""
    environment = {
        **os.environ,
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ALLOW_PROTOCOL": "http:https:ssh:git",
    }
    git = ("git", "-c", "advice.detachedHead=false", "-C", str(folder))

    def run(*words: str) -> str:
        """Why it failed; empty: it did not."""
        try:
            done = subprocess.run(
                [*git, *words], env=environment, capture_output=True, text=True, check=False
            )
        except FileNotFoundError as error:
            raise CodeMissing("there is no git here; use an image that has it") from error
        said = done.stderr.strip() or f"git {words[0]} failed"
        return said.splitlines()[-1] if done.returncode else ""

    wanted = revision or "HEAD"
    why = run("init", "--quiet")
    found = "FETCH_HEAD"
    if not why and run("fetch", "--quiet", "--depth=1", "--", url, wanted):
        # Of a commit that is no branch or tag, some servers give nothing but the whole history.
        everything = ("+refs/heads/*:refs/remotes/origin/*", "+refs/tags/*:refs/tags/*")
        found, why = wanted, run("fetch", "--quiet", "--", url, *everything)
    why = why or run("checkout", "--quiet", "--detach", found)
    if why:
        raise CodeMissing(f"{url}@{wanted}: {why}")


def download(digest: str, folder: Path) -> None:
    """Make the files of an uploaded folder. Raises ``CodeMissing``, ``OSError``."""
    for left in reversed(range(TRIES)):
        try:
            make_files(digest, folder)
        except (OSError, HTTPException):
            if not left:
                raise
            time.sleep(PAUSE_SECONDS)
        else:
            return


def make_files(digest: str, folder: Path) -> None:
    """One try of it: the list of files, and the content of all of them in that order."""
    with get("code") as answer:
        listed = answer.read()
    if hashlib.sha256(listed).hexdigest() != digest:
        raise CodeMissing("its list of files is not the one that was submitted")
    with get("code/content") as answer:
        for file in json.loads(listed)["files"]:
            make_file(file, answer, folder)


def make_file(file: dict[str, Any], content: BinaryIO, folder: Path) -> None:
    """Write a file, unless one came with the request; its part of the content is next."""
    names, left = file["path"].split("/"), file["size"]
    if any(name in ("", ".", "..") for name in names):
        raise CodeMissing(f"{file['path']!r} lies outside the folder")
    path = folder.joinpath(*names)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    with part.open("wb") as out:
        for chunk in file["chunks"]:
            piece = content.read(min(left, CHUNK_BYTES))
            left -= len(piece)
            if hashlib.sha256(piece).hexdigest() != chunk:
                raise ConnectionError(f"{file['path']} did not come whole")
            out.write(piece)
    part.chmod(0o755 if file["executable"] else 0o644)
    if path.exists():
        part.unlink()
    else:
        part.rename(path)


@contextmanager
def get(part: str) -> Iterator[BinaryIO]:
    """What lies at a part of the workload. Raises ``CodeMissing``, ``OSError``."""
    env = os.environ
    address = urlsplit(env["CARREL_URL"].rstrip("/"))
    kind = HTTPSConnection if address.scheme == "https" else HTTPConnection
    path = f"{address.path}/api/v1/workloads/{env['CARREL_PROJECT']}/{env['CARREL_WORKLOAD']}"
    with closing(kind(address.netloc, timeout=TIMEOUT_SECONDS)) as connection:
        headers = {"Authorization": f"token {env['CARREL_TASK_TOKEN']}"}
        connection.request("GET", f"{path}/{part}", headers=headers)
        answer = connection.getresponse()
        if answer.status >= 500:
            raise ConnectionError(f"the scheduler answered with status {answer.status}")
        if answer.status != 200:
            raise CodeMissing(f"the scheduler answered with status {answer.status}")
        yield answer


if __name__ == "__main__":
    main(sys.argv[1:])
