"""Makes one module out of several plain ones, as anywidget wants a view's code in one piece.

The modules that the JupyterLab extension uses as files (requests, words, the quota line) are the
same ones here. They are written for it: named exports, imports on one line from files beside them.
"""

import re
from functools import cache
from pathlib import Path
from typing import Final

PACKAGE: Final = Path(__file__).resolve().parent.parent
FOLDERS: Final = (
    PACKAGE / "widgets" / "static",
    PACKAGE / "lab" / "labextensions" / "carrel" / "static",
)
WORK: Final = ("words.js", "quota.js", "server.js", "parts.js", "actions.js", "head.js")
IMPORT: Final = re.compile(r"^import \{[^}]*\} from '\./[\w.-]+';\n", re.MULTILINE)
EXPORT: Final = re.compile(r"^export (?=(?:async )?(?:function|const|class) )", re.MULTILINE)


@cache
def module(*names: str) -> str:
    """The files joined in this order; only the last one may have a default export."""
    return "\n".join(EXPORT.sub("", IMPORT.sub("", text(name))) for name in names)


@cache
def text(name: str) -> str:
    """A static file of ours. Raises ``FileNotFoundError``."""
    for folder in FOLDERS:
        if (folder / name).is_file():
            return (folder / name).read_text(encoding="utf-8")
    raise FileNotFoundError(name)
