"""A member of an MPI gang: runs what the first member's ``mpirun`` starts here, until it is ended.

``mpirun`` reaches the other members through ``carrel-reach`` (``rsh``) in place of ssh. The
caller proves with the job's own token that it belongs to the job; nothing goes through a shell.
On the wire: a nonce, then one line of JSON with its proof, then frames of output and the exit code.

MPICH sends plain words. Open MPI sends lines for a login shell: ``NAME=VALUE; export NAME;`` once
or more, then words. Exactly these assignments are understood, at the front; all else is words, so
that nothing else of a shell's language ever has a meaning here.
"""

import hashlib
import hmac
import json
import os
import re
import secrets
import shlex
import signal
import socket
import socketserver
import struct
import subprocess
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import IO, Final

from typing_extensions import override

from carrel.job.mpi import host

SHELL_QUESTION: Final = "echo $SHELL"
"""The first command of Open MPI's ``mpirun``: the answer names the shell whose language it uses."""
SHELL_ANSWER: Final = "/bin/bash"
"""The one of those languages of which the assignments are parse_command."""

_DAEMONS_OF_OPEN_MPI: Final = ("prted", "orted")
_ASSIGNMENT: Final = re.compile(
    r"\s*(?P<name>[A-Za-z_]\w*)=(?P<value>[^\s;\"'`]*)\s*;\s*export\s+(?P=name)\s*;"
)
_VARIABLE: Final = re.compile(r"\$(?:\{(?P<guarded>\w+)(?::-)?\}|(?P<plain>\w+))")


def parse_command(line: str, environment: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """Split a line into the words of a command and the environment in which it is to run.

    ``environment``: what is there where the command is to run; variables are read from it.
    """
    variables = dict(environment)
    while found := _ASSIGNMENT.match(line):
        # An empty end of a search path would be the folder of work.
        variables[found["name"]] = _expand_variables(found["value"], variables).rstrip(":")
        line = line[found.end() :]
    words = shlex.split(line)
    if words and words[0].rpartition("/")[2] in _DAEMONS_OF_OPEN_MPI:
        words = host.command_on_host(environment["CARREL_MEMBER"], words)
    return words, variables


def _expand_variables(value: str, environment: Mapping[str, str]) -> str:
    return _VARIABLE.sub(lambda one: environment.get(one["guarded"] or one["plain"], ""), value)


NONCE_BYTES: Final = 32
OUT: Final = 1
ERROR: Final = 2
EXIT: Final = 3
HEAD: Final = struct.Struct("!BI")
"""Kind of a frame and the number of its bytes."""
REFUSED: Final = 255
_MOST_LINE: Final = 1 << 20


def proof(nonce: bytes, line: bytes) -> str:
    """The signature that shows that a line comes from a member of the same job."""
    key = os.environ["CARREL_TASK_TOKEN"].encode()
    return hmac.new(key, nonce + line, hashlib.sha256).hexdigest()


def members() -> dict[str, tuple[str, int]]:
    """Address and port of every member, by name."""
    found = {}
    for one in os.environ["CARREL_MEMBERS"].split(","):
        name, _, where = one.partition("=")
        address, _, port = where.rpartition(":")
        found[name] = (address, int(port))
    return found


class MemberCommandHandler(socketserver.StreamRequestHandler):
    """Handles one request to run a command here."""

    @override
    def handle(self) -> None:
        """Check the proof, run the command, send its output and exit code."""
        nonce = secrets.token_bytes(NONCE_BYTES)
        self.wfile.write(nonce)
        line = self.rfile.readline(_MOST_LINE)
        given = self.rfile.readline(_MOST_LINE).decode("ascii", "replace").strip()
        if not hmac.compare_digest(given, proof(nonce, line)):
            self._send(ERROR, b"refused: this is not a member of the same job\n")
            self._send(EXIT, struct.pack("!i", REFUSED))
            return
        self._run(*parse_command(json.loads(line)["command"], os.environ))

    def _run(self, command: list[str], environment: dict[str, str]) -> None:
        try:
            child = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            self._send(ERROR, f"{command[0]}: {error.strerror}\n".encode())
            self._send(EXIT, struct.pack("!i", 127))
            return
        assert child.stdout is not None and child.stderr is not None  # noqa: S101, PT018 - both are pipes
        sources = ((OUT, child.stdout), (ERROR, child.stderr))
        threads = [threading.Thread(target=self._copy, args=source) for source in sources]
        threading.Thread(target=self._end_with_caller, args=(child,), daemon=True).start()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self._send(EXIT, struct.pack("!i", child.wait()))

    def _copy(self, kind: int, source: IO[bytes]) -> None:
        while data := os.read(source.fileno(), 1 << 16):
            self._send(kind, data)

    def _end_with_caller(self, child: "subprocess.Popen[bytes]") -> None:
        """End the command when its caller disconnects."""
        with suppress(OSError):
            self.rfile.read(1)
        if child.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGTERM)

    def _send(self, kind: int, data: bytes) -> None:
        with _one_at_a_time, suppress(OSError):
            self.wfile.write(HEAD.pack(kind, len(data)) + data)


_one_at_a_time = threading.Lock()


class MemberServer(socketserver.ThreadingTCPServer):
    """Takes commands from members of the same job."""

    allow_reuse_address = True
    daemon_threads = True
    address_family = socket.AF_INET


def main() -> None:
    """Serve until the gang ends."""
    own = members()[os.environ["CARREL_MEMBER"]]
    with MemberServer(own, MemberCommandHandler) as server:
        server.serve_forever()


if __name__ == "__main__":
    main()
