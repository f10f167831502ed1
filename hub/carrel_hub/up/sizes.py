"""Memory sizes as people type them: ``24G``, ``24GiB``, ``24576M``."""

import re
from typing import Final

from carrel_hub.up.trouble import Trouble

_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([MGT])(?:i?B)?\Z", re.IGNORECASE)
_MIB: Final = {"M": 1, "G": 1024, "T": 1024**2}


def mebibytes(text: str, option: str) -> int:
    """A size in MiB. Raises ``Trouble`` naming the option."""
    match = _SIZE.match(text.strip())
    if match is None:
        raise Trouble(f"{option} is {text!r}; it should be a size such as 24G or 24576M.")
    return round(float(match[1]) * _MIB[match[2].upper()])
