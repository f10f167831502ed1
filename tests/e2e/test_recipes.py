"""The recipes of docs/recipes from top to bottom, on CPU and without the internet.

They need libraries of some gigabytes: `make test-torch` installs these and runs this.
"""

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from contract.service.site import Site, site

RECIPES = Path(__file__).parents[2] / "docs" / "recipes"
CELL_SECONDS = 600
SAYS = {
    "huggingface": "model/model.safetensors",
    "lightning": "model.ckpt",
    "mlflow": "{'target': '3'}",
    "wandb": "wandb sync",
}
pytestmark = [pytest.mark.torch, pytest.mark.timeout(1500)]


@pytest.fixture
async def scheduler(tmp_path: Path) -> AsyncIterator[Site]:
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    async with site(state, 1) as made:
        yield made


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that jobs can enter and write to: temporary folders are others for each of them."""
    made = Path(tempfile.mkdtemp(dir="/srv" if os.geteuid() == 0 else Path.home()))
    made.chmod(0o777)
    yield made
    shutil.rmtree(made)


def test_every_recipe_is_run() -> None:
    assert {path.stem for path in RECIPES.glob("*.ipynb")} == set(SAYS)


@pytest.mark.parametrize("name", SAYS)
async def test_it_runs_from_top_to_bottom(scheduler: Site, folder: Path, name: str) -> None:
    notebook = nbformat.read(RECIPES / f"{name}.ipynb", as_version=4)  # type: ignore[no-untyped-call]
    service = {
        "CARREL_URL": scheduler.scheduler.url,
        "CARREL_TOKEN": "ada",
        "CARREL_PROJECT": "vision",
        "HOME": str(folder),
    }
    notebook.cells.insert(0, nbformat.v4.new_code_cell("%load_ext carrel"))  # type: ignore[no-untyped-call]
    client = NotebookClient(
        notebook,
        timeout=CELL_SECONDS,
        startup_timeout=CELL_SECONDS,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
    )
    await client.async_execute(env={**os.environ, **service})
    printed = "".join(
        output.get("text", "") for cell in notebook.cells for output in cell.get("outputs", ())
    )
    assert SAYS[name] in printed
