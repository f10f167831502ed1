"""The folder that goes along with work from the form: uploaded from the browser, or an earlier one.

The page's script lists the folder and sends it through ``handlers/submission/folders.py``, by the
rules that the command line has; the form then carries the digest of the list.
"""

from typing import Any, Final

import msgspec

from carrel.client.working_folder import IGNORE_FILES, NEVER_SENT_LINES
from carrel.models import Workload
from carrel_hub.console.forms import Form
from carrel_schema.code import CHUNK_BYTES, LONGEST_PATH, MOST_FILES, MOST_FOLDER_BYTES, is_digest
from carrel_schema.sections import CodeSource

CODE: Final = "code"
"""The field of a request, and that of the form which holds the digest."""
ABOUT: Final = "code-about"
"""The field with what is said of the folder; the script fills it in."""
LONGEST_ABOUT: Final = 200
RULES: Final = {
    "chunkBytes": CHUNK_BYTES,
    "mostBytes": MOST_FOLDER_BYTES,
    "mostFiles": MOST_FILES,
    "longestPath": LONGEST_PATH,
    "ignoreFiles": IGNORE_FILES,
    "neverSent": NEVER_SENT_LINES,
}
"""The bounds that the script checks in advance; the server enforces them."""


def is_taken_along(kind: str) -> bool:
    """Whether work of this kind runs a command of its person, which may need files."""
    return kind not in ("tensorboard", "workspace")


def fill(form: Form, job: Workload) -> None:
    """Give a form the folder of earlier work, which stays unless it is taken off."""
    if job.spec.code is not None and job.spec.code.digest:
        form.values[CODE] = job.spec.code.digest
        form.values[ABOUT] = f"The folder that {job.name} was submitted with"


def about(form: Form) -> str:
    """The summary of the folder that is known already; empty when there is none."""
    if not form.value(CODE):
        return ""
    return form.value(ABOUT)[:LONGEST_ABOUT] or "The folder that was sent"


def add(form: Form, body: dict[str, Any]) -> None:
    """Put the folder into a request; refused beside what it cannot go together with."""
    digest = form.value(CODE)
    if not digest:
        return
    if not is_digest(digest):
        form.errors[CODE] = "This is no folder that was sent: choose it again."
    elif body.get(CODE) or body.get("working_dir"):
        other = "code from Git" if body.get(CODE) else "a folder to start in"
        form.errors[CODE] = f"Either a folder to take along or {other}: leave one of them out."
    else:
        body[CODE] = {"digest": digest}


def whole(asked: dict[str, Any] | None) -> dict[str, Any] | None:
    """The code of a request as a change of earlier work: nothing of that work's is kept."""
    if asked is None:
        return None
    usual: dict[str, Any] = msgspec.to_builtins(CodeSource())
    return usual | asked
