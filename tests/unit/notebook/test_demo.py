"""The demo notebook as it lies in the package."""

from pathlib import Path
from typing import Any

import nbformat

import carrel.notebook.demo

NOTEBOOK = Path(carrel.notebook.demo.__file__).with_name("carrel-demo.ipynb")


def read_notebook() -> Any:
    untyped: Any = nbformat
    notebook = untyped.read(NOTEBOOK, as_version=4)
    untyped.validate(notebook)
    return notebook


def test_notebook_opens_without_asking_and_holds_no_results() -> None:
    notebook = read_notebook()
    assert notebook.metadata.kernelspec.name == "python3"
    assert all(not cell.outputs for cell in notebook.cells if cell.cell_type == "code")
