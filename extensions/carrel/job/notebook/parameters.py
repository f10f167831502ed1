"""Parameters become a cell of their own, behind the one tagged ``parameters``.

Notebooks and tags are those that papermill uses, so a notebook made for one runs with the other.
"""

import json
import keyword
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from carrel.job.notebook.problem import NotebookProblem
from carrel.job.notebook.source import Notebook, code_cell, tags

DEFAULTS: Final = "parameters"
GIVEN: Final = "injected-parameters"
R_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9._]*")


def give(notebook: Notebook, parameters: Mapping[str, Any], kernel_language: str = "") -> None:
    """Put the parameters' cell into the notebook; one of an earlier run goes.

    Raises ``NotebookProblem`` for a name that is none, or a language that is not known.
    """
    notebook.cells = [cell for cell in notebook.cells if GIVEN not in tags(cell)]
    if not parameters:
        return
    language = kernel_language or _language(notebook)
    lines = [_line(language, name, value) for name, value in parameters.items()]
    cell = code_cell("\n".join(["# Parameters of this run", *lines]), GIVEN)
    places = [place for place, one in enumerate(notebook.cells) if DEFAULTS in tags(one)]
    notebook.cells.insert(places[0] + 1 if places else 0, cell)


def _language(notebook: Notebook) -> str:
    spec, info = notebook.metadata.get("kernelspec", {}), notebook.metadata.get("language_info", {})
    return str(spec.get("language") or info.get("name") or "python").lower()


def _line(language: str, name: str, value: Any) -> str:
    if language not in _LANGUAGES:
        raise NotebookProblem(
            "parameters_unsupported",
            f"Parameters cannot be set in a notebook of the language {language}; "
            f"they can in {', '.join(sorted(_LANGUAGES))}.",
        )
    assign, write, is_name = _LANGUAGES[language]
    if not is_name(name):
        raise NotebookProblem(
            "bad_parameter", f"`{name}` cannot be a parameter: it is no name of a {language} value."
        )
    return f"{name} {assign} {write(value)}"


def _python(value: Any) -> str:
    return repr(value)


def _python_name(name: str) -> bool:
    return name.isidentifier() and not keyword.iskeyword(name)


def _r(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"list({', '.join(f'{json.dumps(key)} = {_r(one)}' for key, one in value.items())})"
    if isinstance(value, list):
        return f"list({', '.join(map(_r, value))})"
    return _scalar(value, "NULL", "TRUE", "FALSE")


def _r_name(name: str) -> bool:
    return R_NAME.fullmatch(name) is not None


def _julia(value: Any) -> str:
    if isinstance(value, Mapping):
        pairs = ", ".join(f"{_julia(key)} => {_julia(one)}" for key, one in value.items())
        return f"Dict({pairs})"
    if isinstance(value, list):
        return f"[{', '.join(map(_julia, value))}]"
    text = _scalar(value, "nothing", "true", "false")
    return text.replace("$", r"\$") if isinstance(value, str) else text


def _scalar(value: Any, nothing: str, yes: str, no: str) -> str:
    if value is None:
        return nothing
    if isinstance(value, bool):
        return yes if value else no
    return json.dumps(value, ensure_ascii=False)


_LANGUAGES: Final[Mapping[str, tuple[str, Callable[[Any], str], Callable[[str], bool]]]] = {
    "python": ("=", _python, _python_name),
    "r": ("<-", _r, _r_name),
    "julia": ("=", _julia, str.isidentifier),
}
