"""The bill of materials of each image names what its requirements pin."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]
IMAGES = sorted(file.parent.name for file in REPOSITORY.glob("images/*/requirements.txt"))


@pytest.fixture(scope="module")
def bills(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bills")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(
        ["bash", str(REPOSITORY / "images/sbom.sh"), str(folder)],
        env={**os.environ, "PATH": path},
        check=True,
    )
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("image", IMAGES)
def test_every_pinned_library_is_in_it(bills: Path, image: str) -> None:
    bill = json.loads((bills / f"{image}.cdx.json").read_text())
    listed = {f"{one['name']}=={one['version']}" for one in bill["components"]}
    text = (REPOSITORY / "images" / image / "requirements.txt").read_text()
    pinned = {line.split()[0] for line in text.splitlines() if "==" in line}
    assert listed == pinned
    assert bill["metadata"]["component"]["name"] == "jupyter-carrel"
