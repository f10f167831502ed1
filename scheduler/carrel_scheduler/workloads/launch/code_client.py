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
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

AT_ONCE: Final = 8
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
    content = Api().get("code")
    if hashlib.sha256(content).hexdigest() != digest:
        raise CodeMissing("its list of files is not the one that was submitted")
    files: list[dict[str, Any]] = json.loads(content)["files"]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for _ in pool.map(lambda part: make_files(part, folder), parts(files)):
            pass


def parts(files: Sequence[dict[str, Any]]) -> Iterator[Sequence[dict[str, Any]]]:
    """The files in as many parts as are fetched at once."""
    return (files[number::AT_ONCE] for number in range(min(AT_ONCE, len(files))))


def make_files(files: Sequence[dict[str, Any]], folder: Path) -> None:
    """Write files, over one connection."""
    api = Api()
    for file in files:
        names = file["path"].split("/")
        if any(name in ("", ".", "..") for name in names):
            raise CodeMissing(f"{file['path']!r} lies outside the folder")
        path = folder.joinpath(*names)
        if path.exists():
            continue  # it came with the request
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as out:
            for chunk in file["chunks"]:
                content = api.get(f"code/{chunk}")
                if hashlib.sha256(content).hexdigest() != chunk:
                    raise CodeMissing(f"{file['path']} came damaged")
                out.write(content)
        path.chmod(0o755 if file["executable"] else 0o644)


class Api:
    """The scheduler, asked with the task's token over one connection."""

    def __init__(self) -> None:
        env = os.environ
        address = urlsplit(env["CARREL_URL"].rstrip("/"))
        self._base = (
            f"{address.path}/api/v1/workloads/{env['CARREL_PROJECT']}/{env['CARREL_WORKLOAD']}"
        )
        self._headers = {"Authorization": f"token {env['CARREL_TASK_TOKEN']}"}
        kind = HTTPSConnection if address.scheme == "https" else HTTPConnection
        self._connection = kind(address.netloc, timeout=TIMEOUT_SECONDS)

    def get(self, part: str) -> bytes:
        """What lies at a part of the workload. Raises ``CodeMissing``, ``OSError``."""
        for left in reversed(range(TRIES)):
            try:
                self._connection.request("GET", f"{self._base}/{part}", headers=self._headers)
                answer = self._connection.getresponse()
                content = answer.read()
            except (OSError, HTTPException):
                self._connection.close()
                if not left:
                    raise
                continue
            if answer.status == 200:
                return content
            if answer.status < 500 or not left:
                raise CodeMissing(f"the scheduler answered with status {answer.status}")
        raise CodeMissing("the scheduler does not answer")


if __name__ == "__main__":
    main(sys.argv[1:])
