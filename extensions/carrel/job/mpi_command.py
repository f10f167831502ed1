"""What ``mpirun`` asks another member to run, understood without a shell.

MPICH sends plain words. Open MPI sends lines for a login shell: ``NAME=VALUE; export NAME;`` once
or more, then words. Exactly these assignments are understood, at the front; all else is words, so
that nothing else of a shell's language ever has a meaning here.
"""

import re
import shlex
from collections.abc import Mapping
from typing import Final

from carrel.job import mpi_host

SHELL_ASKED_FOR: Final = "echo $SHELL"
"""What ``mpirun`` of Open MPI runs first, to learn whose language it has to write."""
SHELL_ANSWER: Final = "/bin/bash"
"""The one of those languages of which the assignments are understood."""

_DAEMONS_OF_OPEN_MPI: Final = ("prted", "orted")
_ASSIGNMENT: Final = re.compile(
    r"\s*(?P<name>[A-Za-z_]\w*)=(?P<value>[^\s;\"'`]*)\s*;\s*export\s+(?P=name)\s*;"
)
_VARIABLE: Final = re.compile(r"\$(?:\{(?P<guarded>\w+)(?::-)?\}|(?P<plain>\w+))")


def understood(line: str, environment: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """Split a line into the words of a command and the environment in which it is to run.

    ``environment``: what is there where the command is to run; variables are read from it.
    """
    told = dict(environment)
    while found := _ASSIGNMENT.match(line):
        # An empty end of a search path would be the folder of work.
        told[found["name"]] = _filled_in(found["value"], told).rstrip(":")
        line = line[found.end() :]
    words = shlex.split(line)
    if words and words[0].rpartition("/")[2] in _DAEMONS_OF_OPEN_MPI:
        words = mpi_host.words(environment["CARREL_MEMBER"], words)
    return words, told


def _filled_in(value: str, environment: Mapping[str, str]) -> str:
    return _VARIABLE.sub(lambda one: environment.get(one["guarded"] or one["plain"], ""), value)
