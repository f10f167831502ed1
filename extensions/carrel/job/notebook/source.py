"""The notebook that is run: found, read, and looked at before a kernel is started."""

from importlib import import_module
from pathlib import Path
from typing import Any, Final

from nbformat.reader import NotJSONError

from carrel.job.notebook.order import Order
from carrel.job.notebook.problem import NotebookProblem

nbformat: Any = import_module("nbformat")  # says that it is typed, and is not
FORMAT: Final = 4
Notebook = Any
"""``nbformat.NotebookNode``: a dictionary whose keys are attributes."""


def sent_along(order: Order) -> bool:
    """Whether the notebook came with the request."""
    return not Path(order.path).is_absolute() and order.sent_along.is_file()


def find(order: Order) -> Path:
    """Where the notebook lies."""
    if sent_along(order):
        return order.sent_along
    return Path(order.path).expanduser().absolute()


def working_folder(order: Order) -> Path:
    """Where cells run: the notebook's own folder; the job's for one that was sent along."""
    return Path.cwd() if sent_along(order) else find(order).parent


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
    """What a file holds, brought to the present format; raises what nbformat raises."""
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
    """Forget what cells from ``begin`` on gave before."""
    for cell in notebook.cells[begin:]:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
