"""Which folders are hidden from an account, and which shown again."""

import os
import sys
from pathlib import Path

import pytest

from carrel_scheduler.engines.contract import EngineError
from carrel_scheduler.engines.local import task_folder
from carrel_scheduler.engines.local.accounts import Account
from carrel_scheduler.engines.local.task_folder import Mounts, check_kept, plan_mounts


def account(home: Path) -> Account:
    """Somebody who owns nothing here."""
    uid, gid = os.getuid() + 1, os.getgid() + 1
    return Account(name="ada", uid=uid, gid=gid, home=home, shared=False, listed=False)


def folder(path: Path, mode: int = 0o755) -> Path:
    path.mkdir(parents=True)
    path.chmod(mode)
    return path


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that everybody reaches, with no folder for temporary files around it."""
    monkeypatch.setattr(task_folder, "TEMPORARY", ())
    monkeypatch.setattr(task_folder, "root_alone_changes", lambda path, trusted: True)
    everybody = tmp_path / "everybody"
    folder(everybody)
    monkeypatch.setattr(
        task_folder,
        "passes",
        lambda path, who, need, real=task_folder.passes: (
            True if everybody.is_relative_to(path) and path != everybody else real(path, who, need)
        ),
    )
    return everybody


def plan(place: Path, readable: list[Path], own: list[Path]) -> Mounts:
    return plan_mounts(account(place), readable=readable, own=own)


def test_open_folders_need_nothing(place: Path) -> None:
    assert plan(place, [folder(place / "venv")], []) == Mounts([], [])


def test_the_outermost_closed_folder_is_masked_and_the_needed_one_shown(place: Path) -> None:
    folder(place / "root", 0o700)
    folder(place / "root" / "inner", 0o700)
    venv = folder(place / "root" / "inner" / "venv")
    view = plan(place, [venv], [])
    assert view.masks == [str(place / "root")]
    assert view.binds == [(str(venv), str(venv), True)]


def test_own_folders_stay_writable_also_inside_readable_ones(place: Path) -> None:
    folder(place / "root", 0o700)
    clone = folder(place / "root" / "clone")
    home = folder(clone / "state" / "home")
    source = folder(clone / "src")
    view = plan(place, [clone, source], [home])
    assert view.binds == [(str(clone), str(clone), True), (str(home), str(home), False)]


def test_nobody_is_promised_what_nothing_would_keep(place: Path) -> None:
    """Without accounts of their own, tasks write wherever we may."""
    data = folder(place / "data")
    ours = Account(
        name="us", uid=os.getuid(), gid=os.getgid(), home=place, shared=True, listed=True
    )
    with pytest.raises(EngineError, match=f"volumes='{data}': cannot be kept from being written"):
        check_kept(str(data), ours)
    check_kept(str(data), account(place))


def test_links_are_shown_where_they_are_and_where_they_lead(place: Path) -> None:
    folder(place / "root", 0o700)
    real = folder(place / "root" / "python-3.11.7")
    link = place / "root" / "python"
    link.symlink_to(real)
    view = plan(place, [link], [])
    assert view.binds == [(str(real), str(link), True), (str(real), str(real), True)]


def test_temporary_folders_are_replaced_and_needed_parts_shown_in_them(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp = folder(place / "tmp")
    monkeypatch.setattr(task_folder, "TEMPORARY", (tmp,))
    data = folder(tmp / "data")
    view = plan_mounts(account(place), readable=[], own=[data, tmp])
    assert view == Mounts([], [(str(data), str(data), False)])


def test_what_is_covered_lies_where_root_alone_changes_things(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_folder, "root_alone_changes", lambda path, trusted: False)
    closed = folder(place / "state", 0o700)
    with pytest.raises(EngineError, match="others than root can change"):
        plan(place, [folder(closed / "venv")], [])


def test_open_folders_inside_a_shown_one_need_nothing_more(place: Path) -> None:
    folder(place / "root", 0o700)
    clone = folder(place / "root" / "clone")
    source = folder(clone / "src")
    assert plan(place, [source, clone], []).binds == [(str(clone), str(clone), True)]
    assert plan(place, [source], [clone]).binds == [(str(clone), str(clone), False)]


def test_the_interpreter_and_our_sources_are_needed() -> None:
    class Everything(Account, frozen=True):
        pass

    who = Everything(name="x", uid=0, gid=0, home=Path("/"), shared=False, listed=True)
    found = task_folder.interpreter_folders(who)
    assert {Path(sys.prefix), Path(sys.base_prefix)} <= set(found)
    assert any((entry / "carrel_scheduler").is_dir() for entry in found)
    assert all(entry.exists() for entry in found)


def test_an_unreadable_interpreter_is_said(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.prefix", str(folder(place / "venv", 0o700)))
    with pytest.raises(EngineError, match="chmod"):
        task_folder.interpreter_folders(account(place))


def test_owner_and_group_bits_count(place: Path) -> None:
    facts = place.stat()
    owner = Account(
        name="o", uid=facts.st_uid, gid=facts.st_gid, home=place, shared=False, listed=True
    )
    closed = folder(place / "mine", 0o700)
    assert task_folder.passes(closed, owner, 5)
    assert not task_folder.passes(closed, account(place), 1)
