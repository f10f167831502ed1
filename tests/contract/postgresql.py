"""A real PostgreSQL server of one's own for tests: started once, stopped by its pid.

``initdb`` refuses root, so root starts it under an unprivileged account, in a folder under /tmp
that this account owns and may enter. It listens on a Unix socket in that folder and nowhere else.
"""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool

DEBIAN: Final = Path("/usr/lib/postgresql")
START_SECONDS: Final = 240.0
# Tests kill no server, so it need not wait for the disk.
SETTINGS: Final = ("fsync=off", "full_page_writes=off", "listen_addresses=", "max_connections=200")


class Account(NamedTuple):
    """The account that runs the server; ``None`` means that of the tests."""

    uid: int | None
    gid: int | None


class PostgreSQL:
    """A running server; ``new_database`` gives an empty one."""

    def __init__(self, process: subprocess.Popen[bytes], sockets: Path) -> None:
        self.process, self._sockets = process, sockets

    def new_database(self) -> str:
        """URL of a new, empty schema: a database in all that tests can see, and quick to make."""
        name = f"carrel_{uuid.uuid4().hex}"
        engine = create_engine(self._url, isolation_level="AUTOCOMMIT", poolclass=NullPool)
        with engine.connect() as connection:
            connection.exec_driver_sql(f"CREATE SCHEMA {name}")
        return f"{self._url}&options=-csearch_path%3D{name}"

    @property
    def _url(self) -> str:
        return f"postgresql+psycopg://carrel@/postgres?host={self._sockets}"


def programs() -> Path:
    """The folder of ``initdb`` and ``postgres``, installed by apt when root and it is missing."""
    found = _installed()
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        waits = ("-o", "DPkg::Lock::Timeout=300")  # another process of the tests may be at it
        command = ["apt-get", "install", "-y", *waits, "--no-install-recommends", "postgresql"]
        subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
        found = _installed()
    if found is None:
        pytest.fail("PostgreSQL is missing; as root: apt-get install postgresql", pytrace=False)
    return found


def _installed() -> Path | None:
    versions = sorted(DEBIAN.glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    if versions:
        return versions[-1].parent
    on_path = shutil.which("initdb")
    return Path(on_path).resolve().parent if on_path else None


def _account() -> Account:
    if os.geteuid() != 0:
        return Account(None, None)
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(entry.pw_uid, entry.pw_gid)
    pytest.fail("running as root needs an account postgres or nobody", pytrace=False)


def _start(folder: Path, account: Account) -> PostgreSQL:
    if account.uid is not None and account.gid is not None:
        os.chown(folder, account.uid, account.gid)
    tools, data = programs(), folder / "data"
    _run_as(
        account,
        folder,
        [str(tools / "initdb"), "-D", str(data), "-U", "carrel", "-A", "trust", "-N", "-E", "UTF8"],
    )
    command = [str(tools / "postgres"), "-D", str(data), "-k", str(folder)]
    for setting in SETTINGS:
        command += ["-c", setting]
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            user=account.uid,
            group=account.gid,
            extra_groups=None if account.uid is None else [],
        )
    server = PostgreSQL(process, folder)
    _wait_until_ready(server, tools, folder)
    return server


def _run_as(account: Account, folder: Path, command: Sequence[str]) -> None:
    done = subprocess.run(
        command,
        cwd=folder,
        check=False,
        capture_output=True,
        user=account.uid,
        group=account.gid,
        extra_groups=None if account.uid is None else [],
    )
    if done.returncode:
        pytest.fail(f"{command[0]} failed: {done.stderr.decode()}", pytrace=False)


def _wait_until_ready(server: PostgreSQL, tools: Path, folder: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    ready = [str(tools / "pg_isready"), "-q", "-h", str(folder)]
    while subprocess.run(ready, check=False).returncode:
        if server.process.poll() is not None or time.monotonic() > deadline:
            log = (folder / "server.log").read_text()
            server.process.kill()
            server.process.wait()
            pytest.fail(f"PostgreSQL did not start: {log}", pytrace=False)
        time.sleep(0.05)


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgreSQL]:
    """The server; shared by all tests of the session."""
    folder = Path(tempfile.mkdtemp(prefix="carrel-postgresql-", dir="/tmp"))
    try:
        server = _start(folder, _account())
        yield server
        # Quit: at once, writing nothing; the data is thrown away.
        server.process.send_signal(signal.SIGQUIT)
        server.process.wait(timeout=START_SECONDS)
    finally:
        shutil.rmtree(folder)
