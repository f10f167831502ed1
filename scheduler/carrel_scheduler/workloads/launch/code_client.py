"""Starts a job in the code that travels with it: ``code.py COMMAND...``; a file of its tasks.

It lies in ``.carrel`` of the task's folder beside ``code.json``, which says what to fetch: an
uploaded folder, by its digest, and revisions of Git repositories. The files are fetched with the
task's own token and made with the rights of the task's user, beside those that came with the
request, which are kept; then the command replaces this process. Needs Python alone, since it also
runs in images without Carrel.

Credentials of repositories are variables of this process. Git is told them for the host of the
repository alone, and the command that follows does not have them.
"""

import hashlib
import json
import os
import shlex
import subprocess
import sys
import tempfile
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
TELL: Final = "--tell-git-the-credentials"
NOT_FETCHED, NOT_EXECUTABLE, NOT_FOUND = 125, 126, 127


class CodeMissing(Exception):  # noqa: N818 - what happened
    """The code could not be fetched; the message has the cause."""


def main(command: Sequence[str]) -> None:
    """Fetch the code, change to its folder and exec the command."""
    asked = json.loads(Path(__file__).with_name("code.json").read_text(encoding="utf-8"))
    try:
        for one in asked:
            folder = Path.cwd() / one.get("destination", "")
            if one["git"]:
                folder.mkdir(parents=True, exist_ok=True)
                with credentials(one["git"], one["number"]) as (options, variables):
                    clone(one["git"], one["revision"], folder, options, variables)
            else:
                download(one["digest"], folder)
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


@contextmanager
def credentials(url: str, number: int) -> Iterator[tuple[list[str], dict[str, str]]]:
    """Options and variables of git for a repository's credentials, which leave the environment.

    Raises ``CodeMissing`` where a password would travel in clear text.
    """
    prefix = f"CARREL_GIT_{number}_"
    given = {
        name.removeprefix(prefix): os.environ.pop(name)
        for name in list(os.environ)
        if name.startswith(prefix)
    }
    with tempfile.TemporaryDirectory(prefix="carrel-git-") as folder:
        if "PRIVATE_KEY" in given:
            yield [], {"GIT_SSH_COMMAND": ssh_command(given, Path(folder))}
        elif "PASSWORD" in given:
            parts = urlsplit(url)
            near = parts.hostname in ("localhost", "127.0.0.1", "::1")
            if parts.scheme != "https" and not (parts.scheme == "http" and near):
                raise CodeMissing(f"{url}: a password is sent to addresses with https:// only")
            helper = f"!{shlex.join([sys.executable, '-I', __file__, TELL])}"
            option = f"credential.{parts.scheme}://{parts.netloc}.helper={helper}"
            told = {"CARREL_GIT_USERNAME": given.get("USERNAME", "git")}
            yield ["-c", option], {**told, "CARREL_GIT_PASSWORD": given["PASSWORD"]}
        else:
            yield [], {}


def ssh_command(given: dict[str, str], folder: Path) -> str:
    """The ssh command of git: with this key alone, and with the known hosts that came with it."""
    key, hosts = folder / "key", folder / "known_hosts"
    key.touch(mode=0o600)
    key.write_text(given["PRIVATE_KEY"].rstrip("\n") + "\n", encoding="utf-8")
    hosts.write_text(given.get("KNOWN_HOSTS", "") + "\n", encoding="utf-8")
    strict = "yes" if given.get("KNOWN_HOSTS") else "accept-new"
    options = (
        "IdentitiesOnly=yes",
        "BatchMode=yes",
        f"UserKnownHostsFile={hosts}",
        f"StrictHostKeyChecking={strict}",
    )
    return shlex.join(["ssh", "-i", str(key), *(f"-o{one}" for one in options)])


def tell_credentials() -> None:
    """Answer git's prompt for the credentials of a repository."""
    for name in ("username", "password"):
        value = os.environ[f"CARREL_GIT_{name.upper()}"]
        if "\n" not in value:
            print(f"{name}={value}")  # noqa: T201 - the protocol of git's credential helpers


def clone(
    url: str, revision: str, folder: Path, options: Sequence[str], variables: dict[str, str]
) -> None:
    """Check a revision of a Git repository out. Raises ``CodeMissing``."""
    environment = {
        **os.environ,
        **variables,
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ALLOW_PROTOCOL": "http:https:ssh:git",
    }
    git = ("git", "-c", "advice.detachedHead=false", *options, "-C", str(folder))

    def run(*words: str) -> str:
        """Run git; returns why it failed, empty on success."""
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
    places = ["FETCH_HEAD"]
    if not why and run("fetch", "--quiet", "--depth=1", "--", url, wanted):
        # Some servers give no single commit, and plain files no part of the history.
        origin = "refs/remotes/origin"
        everything = (
            f"+HEAD:{origin}/HEAD",
            f"+refs/heads/*:{origin}/*",
            "+refs/tags/*:refs/tags/*",
        )
        why = run("fetch", "--quiet", "--", url, *everything)
        places = [f"{origin}/{wanted}", wanted]
    for place in () if why else places:
        why = run("checkout", "--quiet", "--detach", place)
        if not why:
            break
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
    """Fetch the code once: the list of files, and the content of all of them in that order."""
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
    """Download a part of the workload from the API. Raises ``CodeMissing``, ``OSError``."""
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
    if sys.argv[1:2] == [TELL]:
        tell_credentials()
    else:
        main(sys.argv[1:])
