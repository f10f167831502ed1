"""``carrel-reach MEMBER COMMAND...``: what ``mpirun`` uses in place of ssh inside a job.

It runs a command in another member of the same gang, as ssh would, and ends with its exit code. The
words of the command are joined and split again the way a remote shell would, without any shell.
"""

import json
import os
import socket
import struct
import subprocess
import sys
import time
from typing import BinaryIO, Final

from carrel.job.mpi.member import (
    ERROR,
    EXIT,
    HEAD,
    NONCE_BYTES,
    OUT,
    REFUSED,
    SHELL_ANSWER,
    SHELL_QUESTION,
    members,
    parse_command,
    proof,
)

PAUSE_SECONDS: Final = 0.1


class MemberUnreachable(Exception):  # noqa: N818
    """The member does not answer."""


def main(arguments: list[str] | None = None) -> None:
    """Entry point of ``carrel-reach``."""
    words = sys.argv[1:] if arguments is None else arguments
    while words and words[0].startswith("-"):  # options of ssh and rsh: ``-x``, ``-n``
        words = words[1:]
    if len(words) < 2 or "CARREL_MEMBERS" not in os.environ:
        sys.exit("carrel-reach MEMBER COMMAND...: runs inside the tasks of an MPI job only")
    name, command = words[0], " ".join(words[1:])
    known = members()
    if name not in known:
        sys.exit(f"carrel-reach: there is no member {name!r}; there are {', '.join(known)}")
    if command == SHELL_QUESTION:
        sys.stdout.write(f"{SHELL_ANSWER}\n")
        return
    if name == os.environ.get("CARREL_MEMBER"):
        sys.exit(_here(command))
    try:
        sys.exit(_there(known[name], command))
    except MemberUnreachable as error:
        sys.exit(f"carrel-reach: {name}: {error}")


def _here(command: str) -> int:
    asked, environment = parse_command(command, os.environ)
    return subprocess.call(asked, env=environment)


def _there(where: tuple[str, int], command: str) -> int:
    with _connected(where) as connection, connection.makefile("rb") as answers:
        nonce = _exactly(answers, NONCE_BYTES)
        line = json.dumps({"command": command}).encode() + b"\n"
        connection.sendall(line + proof(nonce, line).encode() + b"\n")
        while True:
            kind, size = HEAD.unpack(_exactly(answers, HEAD.size))
            data = _exactly(answers, size)
            if kind == EXIT:
                code = int(struct.unpack("!i", data)[0])
                return code if code >= 0 else 128 - code
            target = {OUT: sys.stdout.buffer, ERROR: sys.stderr.buffer}[kind]
            target.write(data)
            target.flush()


def _connected(where: tuple[str, int]) -> socket.socket:
    """A connection, as soon as the member listens."""
    timeout = float(os.environ.get("CARREL_JOIN_TIMEOUT", "600"))
    deadline = time.monotonic() + timeout
    while True:
        try:
            return socket.create_connection(where)
        except OSError as error:
            if time.monotonic() > deadline:
                raise MemberUnreachable(
                    f"it does not answer within {timeout:g} s ({error})"
                ) from error
            time.sleep(PAUSE_SECONDS)


def _exactly(source: BinaryIO, size: int) -> bytes:
    data = source.read(size)
    if len(data) != size:
        raise MemberUnreachable(f"it went away (exit code {REFUSED})")
    return data


if __name__ == "__main__":
    main()
