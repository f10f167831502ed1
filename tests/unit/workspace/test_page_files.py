"""What browsers keep of JupyterLab's page, and for how long."""

from pathlib import Path
from typing import Any

from carrel.workspace.page_files import hashed_folders, own_hash

BASE = "/user/ada/"


def extension(load: str) -> dict[str, Any]:
    return {"jupyterlab": {"_build": {"load": load}}}


def test_only_folders_of_names_with_a_hash_are_kept() -> None:
    installed = {
        "@jupyter-widgets/manager": extension("static/remoteEntry.c8c9eed2cdefdeac.js"),
        "anywidget": extension("./static/remoteEntry.698dcaf7.js"),
        "carrel": extension("static/remoteEntry.js"),
        "strange": extension("static/../../remoteEntry.c8c9eed2cdefdeac.js"),
        "theme": {"jupyterlab": {}},
    }
    assert hashed_folders(BASE, installed) == [
        "/user/ada/lab/extensions/@jupyter-widgets/manager/static/",
        "/user/ada/lab/extensions/anywidget/static/",
    ]


def test_the_address_changes_with_every_file(tmp_path: Path) -> None:
    (tmp_path / "one.js").write_text("1")
    first = own_hash(tmp_path)
    assert own_hash(tmp_path) == first
    (tmp_path / "one.js").write_text("2")
    second = own_hash(tmp_path)
    (tmp_path / "one.js").rename(tmp_path / "two.js")
    assert len({first, second, own_hash(tmp_path)}) == 3
