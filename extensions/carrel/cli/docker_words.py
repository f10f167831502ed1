"""Words of ``docker run`` lines that mean something else to ``carrel submit``.

Most options are the same ones. Of the others, ``-p 8888:80`` publishes a port (``-p`` with a
project has no colon), ``--shm-size`` asks for shared memory, and ``-u`` has no effect: a job runs
as the person who submits it. What stands behind ``--`` is the command's own.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from carrel.cli.output import note

PUBLISHED: Final = re.compile(r"(?:[\d.]+:)?\d*:(\d+)(?:/tcp)?")
NO_USER: Final = "-u has no effect: a job runs as you."
VALUED: Final = {
    "-p": "port", "--publish": "port", "--shm-size": "shm", "-u": "user", "--user": "user",
}  # fmt: skip


def translated(words: Sequence[str], tell: Callable[[str], None] = note) -> list[str]:
    """The same line in our words."""
    return list(_translated(iter(words), tell))


def _translated(words: Iterator[str], tell: Callable[[str], None]) -> Iterator[str]:
    for word in words:
        flag, sign, value = word.partition("=")
        meaning = VALUED.get(flag)
        if meaning is None or (sign and not flag.startswith("--")):
            yield word
            continue
        text = value if sign else next(words, None)
        if text is None:  # nothing behind it, which is said elsewhere
            yield word
            return
        published = PUBLISHED.fullmatch(text)
        if meaning == "port" and published:
            yield from ("--port", published[1])
        elif meaning == "shm":
            yield "--large-shm"
        elif meaning == "user":
            tell(NO_USER)
        else:
            yield from (flag, text)
