"""Requests written in a file: YAML with the API's own fields, one document for each workload."""

import difflib
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from carrel import options
from carrel.errors import BadSetting

NOTHING: Final[Mapping[str, Any]] = {}
WITHOUT_OPTION: Final = frozenset({"kind", "command", "files"})
Json = dict[str, Any]


def load(file: str | None) -> list[Mapping[str, Any]]:
    """What a file asks for; one empty request without a file. Raises ``BadSetting``."""
    if file is None:
        return [NOTHING]
    found = [document for document in documents(file) if document is not None]
    if not found:
        raise BadSetting(f"{file} asks for nothing; write a request such as `kind: training`.")
    return [_checked(file, document) for document in found]


def documents(file: str) -> list[Any]:
    """The documents of a YAML file, or of standard input (``-``). Raises ``BadSetting``."""
    import yaml

    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
        return list(yaml.safe_load_all(text))
    except (OSError, UnicodeDecodeError) as error:
        raise BadSetting(f"{file} cannot be read: {error}.") from error
    except yaml.YAMLError as error:
        where = getattr(error, "problem_mark", None)
        line = f", line {where.line + 1}" if where is not None else ""
        raise BadSetting(
            f"{file}{line} is no YAML: {getattr(error, 'problem', error)}.", code="malformed_yaml"
        ) from error


def _checked(file: str, document: Any) -> Mapping[str, Any]:
    if not isinstance(document, dict) or not all(isinstance(key, str) for key in document):
        raise BadSetting(f"{file} should hold fields of a request, such as `kind: training`.")
    kinds = [kind.name for kind in options.KINDS]
    if document.get("kind", "training") not in kinds:
        raise BadSetting(
            f"{file}: kind {document['kind']!r} is not known; write one of {', '.join(kinds)}.",
            code="unknown_value",
        )
    known = {re.split(r"[.\[]", path)[0] for row in options.TABLE for path in row.fields}
    for field in document:
        if field not in known | WITHOUT_OPTION:
            right = difflib.get_close_matches(field, known | WITHOUT_OPTION, n=1)
            hint = f"; did you mean `{right[0]}`?" if right else "; docs/api.md lists them."
            raise BadSetting(f"{file}: there is no field `{field}`{hint}", code="unknown_field")
    return {"kind": "training", **document}


def with_notebook(kind: str, fields: Json) -> Json:
    """A request whose notebook was named on the command line: the notebook is sent along."""
    from carrel.client.notebooks import notebook_body

    section = dict(fields.pop("notebook"))
    send: bool | None = None
    if kind == "schedule" and "JUPYTERHUB_API_TOKEN" in os.environ:
        send = False  # each run reads it anew
    timeout = section.pop("cell_timeout_seconds", None)
    path = section.pop("path")
    return notebook_body(path, **section, cell_timeout=timeout, send=send, **fields)
