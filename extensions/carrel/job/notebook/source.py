"""The notebook of a run: found, read, and given its parameters before a kernel is started.

Parameters become a cell of their own, behind the one tagged ``parameters``. Notebooks and tags are
those that papermill uses, so a notebook made for one runs with the other.
"""

import json
import keyword
import re
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from nbformat.reader import NotJSONError

from carrel.job.notebook.reporting import NotebookProblem
from carrel.job.notebook.spec import RunSpec

nbformat: Any = import_module("nbformat")  # says that it is typed, and is not
FORMAT: Final = 4
Notebook = Any
"""``nbformat.NotebookNode``: a dictionary whose keys are attributes."""


def sent_along(spec: RunSpec) -> bool:
    """Whether the notebook came with the request."""
    return not Path(spec.path).is_absolute() and spec.sent_along.is_file()


def find(spec: RunSpec) -> Path:
    """The path of the notebook."""
    if sent_along(spec):
        return spec.sent_along
    return Path(spec.path).expanduser().absolute()


def working_folder(spec: RunSpec) -> Path:
    """The folder in which cells run: the notebook's own; the job's for one that was sent along."""
    return Path.cwd() if sent_along(spec) else find(spec).parent


def read(path: Path) -> Notebook:
    """The notebook. Raises ``NotebookProblem`` for what is not there or is none."""
    try:
        _, notebook = nbformat.validator.normalize(load(path))
        nbformat.validate(notebook)
    except (FileNotFoundError, NotADirectoryError):
        raise NotebookProblem("notebook_missing", f"There is no notebook {path}.") from None
    except OSError as error:
        raise NotebookProblem(
            "notebook_unreadable", f"{path} cannot be read: {error.strerror}."
        ) from error
    except nbformat.ValidationError as error:
        why = str(error.message).splitlines()[0][:200].rstrip(".")
        raise NotebookProblem("notebook_invalid", f"{path} is no valid notebook: {why}.") from error
    except (NotJSONError, UnicodeDecodeError, ValueError, KeyError, AttributeError) as error:
        raise NotebookProblem(
            "notebook_invalid", f"{path} is no notebook: its content is not that of an .ipynb file."
        ) from error
    return notebook


def load(path: Path) -> Notebook:
    """Read a notebook in the present format; raises what nbformat raises."""
    return nbformat.read(path, as_version=FORMAT)


def text(notebook: Notebook) -> str:
    """The notebook as it is written."""
    return str(nbformat.writes(notebook))


def code_cell(source: str, tag: str) -> Notebook:
    """A new cell."""
    return nbformat.v4.new_code_cell(source, metadata={"tags": [tag]})


def tags(cell: Notebook) -> frozenset[str]:
    """The tags of a cell."""
    return frozenset(cell.metadata.get("tags", ()))


def runs(cell: Notebook) -> bool:
    """Whether there is anything to run in a cell."""
    return cell.cell_type == "code" and bool(cell.source.strip())


def clear(notebook: Notebook, begin: int = 0) -> None:
    """Remove the outputs of cells from ``begin`` on."""
    for cell in notebook.cells[begin:]:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None


DEFAULTS: Final = "parameters"
GIVEN: Final = "injected-parameters"
R_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9._]*")


def inject(notebook: Notebook, parameters: Mapping[str, Any], kernel_language: str = "") -> None:
    """Insert the cell with the parameters; remove that of an earlier run.

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
