"""Whether root alone can change what lies at a path."""

import os
from pathlib import Path

import pytest

from carrel_scheduler.engines.local.shim import linux
from carrel_scheduler.engines.local.shim.mount_points import root_alone_changes


def test_every_folder_above_counts(tmp_path: Path) -> None:
    trusted = (0, os.getuid())
    path = tmp_path / "a" / "b" / "c"
    path.mkdir(parents=True)
    assert root_alone_changes(str(path), trusted)
    assert root_alone_changes(str(path / "not" / "yet"), trusted)
    path.chmod(0o777)
    assert root_alone_changes(str(path), trusted), "what is in it does not matter"
    (tmp_path / "a").chmod(0o777)
    assert not root_alone_changes(str(path), trusted)
    (tmp_path / "a").chmod(0o1777)
    assert root_alone_changes(str(path), trusted), (
        "in a sticky folder nobody renames others' things"
    )
    assert not root_alone_changes(str(path), (os.getuid() + 1,))
    (tmp_path / "link").symlink_to(tmp_path / "a")
    assert not root_alone_changes(str(tmp_path / "link" / "b"), trusted)


def test_a_path_ends_where_it_ends() -> None:
    """The kernel would read up to the NUL character."""
    with pytest.raises(OSError, match="Invalid argument"):
        linux.open_path("/etc\0/shadow", linux.RESOLVE_NO_MAGICLINKS)
