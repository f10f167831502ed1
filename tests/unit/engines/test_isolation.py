"""Which folders are hidden from an account, and which shown again."""

import os
import sys
from pathlib import Path

import pytest

from carrel_scheduler.engines.contract import EngineError
from carrel_scheduler.engines.local import isolation
from carrel_scheduler.engines.local.accounts import Account
from carrel_scheduler.engines.local.isolation import View, check_reachable, plan_view


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
    monkeypatch.setattr(isolation, "TEMPORARY", ())
    everybody = tmp_path / "everybody"
    folder(everybody)
    monkeypatch.setattr(
        isolation,
        "passes",
        lambda path, who, need, real=isolation.passes: (
            True if everybody.is_relative_to(path) and path != everybody else real(path, who, need)
        ),
    )
    return everybody


def plan(place: Path, readable: list[Path], own: list[Path]) -> View:
    return plan_view(account(place), readable=readable, own=own, private_tmp=place)


def test_open_folders_need_nothing(place: Path) -> None:
    assert plan(place, [folder(place / "venv")], []) == View([], [])


def test_the_outermost_closed_folder_is_veiled_and_the_needed_one_shown(place: Path) -> None:
    folder(place / "root", 0o700)
    folder(place / "root" / "inner", 0o700)
    venv = folder(place / "root" / "inner" / "venv")
    view = plan(place, [venv], [])
    assert view.veils == [(str(place / "root"), "")]
    assert view.binds == [(str(venv), str(venv), True)]


def test_own_folders_stay_writable_also_inside_readable_ones(place: Path) -> None:
    folder(place / "root", 0o700)
    clone = folder(place / "root" / "clone")
    home = folder(clone / "state" / "home")
    source = folder(clone / "src")
    view = plan(place, [clone, source], [home])
    assert view.binds == [(str(clone), str(clone), True), (str(home), str(home), False)]


def test_a_folder_that_is_only_read_is_mounted_so_also_where_nothing_hides_it(place: Path) -> None:
    data = folder(place / "data")
    home = folder(place / "home")
    view = plan_view(account(place), readable=[], own=[home, data], private_tmp=place, kept=[data])
    assert view == View([], [(str(data), str(data), True)])


def test_nobody_is_promised_what_nothing_would_keep(place: Path) -> None:
    """Without accounts of their own, tasks write wherever we may."""
    data = folder(place / "data")
    ours = Account(
        name="us", uid=os.getuid(), gid=os.getgid(), home=place, shared=True, listed=True
    )
    with pytest.raises(EngineError, match=f"volumes='{data}': cannot be kept from being written"):
        isolation.read_only([str(data)], ours)
    assert isolation.read_only([str(data)], account(place)) == [data]


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
    monkeypatch.setattr(isolation, "TEMPORARY", (tmp,))
    data = folder(tmp / "data")
    view = plan_view(account(place), readable=[], own=[data, tmp], private_tmp=place / "mine")
    assert view.veils == [(str(tmp), str(place / "mine"))]
    assert view.binds == [(str(data), str(data), False)]


def test_a_volume_around_the_state_folder_leaves_the_tasks_own_folders_in_reach(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp = folder(place / "tmp")
    monkeypatch.setattr(isolation, "TEMPORARY", (tmp,))
    volume = folder(tmp / "ada")
    state = folder(volume / ".carrel", 0o700)
    work, checkpoints = folder(state / "tasks" / "work"), folder(state / "checkpoints")
    who = account(folder(state / "homes" / "ada"))
    own = [work, volume, checkpoints, who.home]
    view = plan_view(who, readable=[], own=own, private_tmp=place / "mine")
    assert view.veils == [(str(tmp), str(place / "mine")), (str(state), "")]
    shown = [volume, checkpoints, who.home, work]
    assert view.binds == [(str(path), str(path), False) for path in shown]


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
    found = isolation.interpreter_folders(who)
    assert {Path(sys.prefix), Path(sys.base_prefix)} <= set(found)
    assert any((entry / "carrel_scheduler").is_dir() for entry in found)
    assert all(entry.exists() for entry in found)


def test_an_unreadable_interpreter_is_said(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.prefix", str(folder(place / "venv", 0o700)))
    with pytest.raises(EngineError, match="chmod"):
        isolation.interpreter_folders(account(place))


def test_a_folder_is_reachable_by_its_own_permissions_only(place: Path) -> None:
    who = account(folder(place / "home"))
    open_data = folder(place / "data")
    closed = folder(place / "closed", 0o700)
    inside = folder(closed / "inside")
    assert check_reachable(open_data, who, "volumes") == open_data
    for path in (closed, inside, place / "missing"):
        with pytest.raises(EngineError, match=f"volumes='{path}'"):
            check_reachable(path, who, "volumes")


def test_the_home_is_reachable_but_links_in_it_lead_nowhere_else(place: Path) -> None:
    folder(place / "state", 0o700)
    home = folder(place / "state" / "home")
    inside = folder(place / "state" / "other")
    who = account(home)
    assert check_reachable(home, who, "working_dir") == home
    (home / "link").symlink_to(inside)
    (home / "loop").symlink_to(home / "loop")
    for name in ("link", "loop"):
        with pytest.raises(EngineError, match="working_dir"):
            check_reachable(home / name, who, "working_dir")


def test_owner_and_group_bits_count(place: Path) -> None:
    facts = place.stat()
    owner = Account(
        name="o", uid=facts.st_uid, gid=facts.st_gid, home=place, shared=False, listed=True
    )
    closed = folder(place / "mine", 0o700)
    assert isolation.passes(closed, owner, 5)
    assert not isolation.passes(closed, account(place), 1)
