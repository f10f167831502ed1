"""Which account a user gets."""

import fcntl
import json
import os
import pwd
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from carrel_scheduler.engines.contract import EngineError
from carrel_scheduler.engines.local import accounts
from carrel_scheduler.engines.local.accounts import AccountRefused, Accounts
from carrel_scheduler.engines.local.task_state import write_whole
from carrel_schema.governance.people import PosixIdentity

UIDS = range(61000, 61500)


def person(name: str, uid: int, gid: int | None = None) -> pwd.struct_passwd:
    return pwd.struct_passwd(
        (name, "x", uid, uid if gid is None else gid, "", f"/home/{name}", "/bin/sh")
    )


MACHINE = [
    person("root", 0),
    person("daemon", 1),
    person("postgres", 104),
    person("linus", 1000),
    person("wheel", 1001, 0),
    person("nobody", 65534),
    person("taken", UIDS.start + 1),
]


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[int]]:
    """A machine with known accounts; returns who was made owner of homes."""
    owners: dict[str, list[int]] = {}

    def by_name(name: str) -> pwd.struct_passwd:
        return {one.pw_name: one for one in MACHINE}[name]

    def by_uid(uid: int) -> pwd.struct_passwd:
        return {one.pw_uid: one for one in MACHINE}[uid]

    def chown(path: Path, uid: int, gid: int, *, follow_symlinks: bool = True) -> None:
        assert not follow_symlinks
        owners[path.name] = [uid, gid]

    monkeypatch.setattr("pwd.getpwnam", by_name)
    monkeypatch.setattr("pwd.getpwuid", by_uid)
    monkeypatch.setattr("os.chown", chown)
    return owners


def opened(
    tmp_path: Path,
    *,
    privileged: bool = True,
    uids: range | None = UIDS,
    system_accounts: tuple[str, ...] = (),
) -> Accounts:
    state = tmp_path / "accounts"
    state.mkdir(exist_ok=True)
    return Accounts(
        state,
        tmp_path / "homes",
        uids=uids,
        privileged=privileged,
        system_accounts=system_accounts,
    )


def test_a_name_of_the_machine_is_somebody_elses_unless_the_admin_says_so(tmp_path: Path) -> None:
    account = opened(tmp_path, system_accounts=("ada",)).resolve("linus")
    assert account.uid in UIDS
    assert account.home == tmp_path / "homes" / "linus"
    assert not account.listed


def test_every_installation_has_numbers_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = accounts.BLOCKS[7]
    taken = tmp_path / "subuid"
    rest = accounts.BLOCKS.stop - left - accounts.BLOCKS.step
    taken.write_text(
        f"ada:{accounts.BLOCKS.start}:{left - accounts.BLOCKS.start}\n"
        f"grace:{left + accounts.BLOCKS.step}:{rest}\nbroken\n"
    )
    monkeypatch.setattr(accounts, "SUBORDINATE", (taken, tmp_path / "none"))
    assert opened(tmp_path, uids=None).resolve("ada").uid == left
    taken.write_text("")
    assert opened(tmp_path, uids=None).resolve("grace").uid == left + 1, "it is kept"
    (tmp_path / "accounts" / "block.json").write_text("1000")
    with pytest.raises(EngineError, match="begins no block"):
        opened(tmp_path, uids=None).resolve("joan")


def test_numbers_that_were_given_out_before_stay(tmp_path: Path) -> None:
    (tmp_path / "accounts").mkdir()
    (tmp_path / "accounts" / "uids.json").write_text(json.dumps({"ada": 61184}))
    assert opened(tmp_path, uids=None).resolve("ada").uid == 61184
    assert opened(tmp_path, uids=None).resolve("grace").uid in range(
        accounts.BLOCKS.start, accounts.BLOCKS.stop
    )


@pytest.mark.parametrize("names", [("linus", "ada"), ("*",)])
def test_an_ordinary_account_of_the_machine_is_used_if_listed(
    tmp_path: Path, names: tuple[str, ...]
) -> None:
    account = opened(tmp_path, system_accounts=names).resolve("linus")
    assert (account.uid, account.gid, account.home) == (1000, 1000, Path("/home/linus"))
    assert account.listed
    assert not account.shared


def test_others_get_a_number_of_their_own_for_ever(
    tmp_path: Path, machine: dict[str, list[int]]
) -> None:
    first = opened(tmp_path)
    ada, grace = first.resolve("ada"), first.resolve("grace")
    assert (ada.uid, grace.uid) == (UIDS.start, UIDS.start + 2), "one is taken"
    assert ada.gid == ada.uid
    assert opened(tmp_path).resolve("grace") == grace
    assert opened(tmp_path).resolve("ada") == ada
    assert machine["ada"] == [ada.uid, ada.gid]
    assert stat.S_IMODE(ada.home.stat().st_mode) == 0o700
    assert ada.home == tmp_path / "homes" / "ada"
    assert stat.S_IMODE((tmp_path / "accounts" / "uids.json").stat().st_mode) == 0o600


def test_who_comes_at_once_is_given_numbers_in_one_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, users = opened(tmp_path), [f"user-{number}" for number in range(8)]
    writes: list[Path] = []

    def write(path: Path, data: bytes, *, sync: bool) -> None:
        assert sync
        writes.append(path)
        write_whole(path, data)

    monkeypatch.setattr(accounts, "write_whole", write)
    with (tmp_path / "accounts" / "uids.lock").open("w") as lock, ThreadPoolExecutor(8) as pool:
        fcntl.flock(lock, fcntl.LOCK_EX)
        coming = [pool.submit(found.resolve, user) for user in users]
        while len(found._wanted) < len(users):
            time.sleep(0.001)
        fcntl.flock(lock, fcntl.LOCK_UN)
    assert len({one.result().uid for one in coming}) == len(users)
    assert len(writes) == 1
    assert {opened(tmp_path).resolve(user).uid for user in users} == {
        one.result().uid for one in coming
    }


@pytest.mark.parametrize("user", ["root", "daemon", "postgres", "nobody", "wheel"])
def test_system_accounts_are_refused(tmp_path: Path, user: str) -> None:
    with pytest.raises(AccountRefused, match=f"user='{user}'"):
        opened(tmp_path, system_accounts=("*",)).resolve(user)


@pytest.mark.parametrize(
    "user", ["", ".", "..", "../x", "a/b", "-x", "a..b", "a b", "a\n", "x:0", "a\0", "x" * 65, "ä"]
)
@pytest.mark.parametrize("privileged", [True, False])
def test_names_that_are_no_file_names_are_refused(
    tmp_path: Path, user: str, privileged: bool
) -> None:
    with pytest.raises(AccountRefused, match="user="):
        opened(tmp_path, privileged=privileged).resolve(user)
    assert not (tmp_path / "homes").exists()


def test_a_number_that_the_machine_took_meanwhile_is_not_shared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = opened(tmp_path).resolve("ada").uid
    monkeypatch.setattr("pwd.getpwuid", lambda _: person("intruder", number))
    with pytest.raises(AccountRefused, match="intruder"):
        opened(tmp_path).resolve("ada")


def test_no_numbers_left_is_said(tmp_path: Path) -> None:
    accounts = opened(tmp_path, uids=range(61300, 61301))
    accounts.resolve("ada")
    with pytest.raises(EngineError, match="61300"):
        accounts.resolve("grace")
    assert accounts.resolve("ada").uid == 61300


@pytest.mark.parametrize("uids", [range(10), range(999, 2000), range(65000, 65536)])
def test_numbers_of_the_system_cannot_be_given_out(tmp_path: Path, uids: range) -> None:
    with pytest.raises(EngineError, match="uids="):
        opened(tmp_path, uids=uids)


def test_a_damaged_file_stops_instead_of_starting_over(tmp_path: Path) -> None:
    opened(tmp_path).resolve("ada")
    (tmp_path / "accounts" / "uids.json").write_text("{")
    with pytest.raises(EngineError, match="damaged"):
        opened(tmp_path).resolve("grace")


def test_a_forged_file_cannot_make_anybody_root(tmp_path: Path) -> None:
    accounts = opened(tmp_path)
    (tmp_path / "accounts" / "uids.json").write_text(json.dumps({"ada": 0}))
    with pytest.raises(AccountRefused):
        accounts.resolve("ada")


def test_an_ordinary_person_shares_and_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.getuid", lambda: 1000)
    monkeypatch.setattr("os.getgid", lambda: 1000)
    accounts = opened(tmp_path, privileged=False)
    own, other = accounts.resolve("linus"), accounts.resolve("root")
    assert (own.uid, own.home, own.shared) == (1000, Path("/home/linus"), True)
    assert (other.uid, other.home, other.shared) == (1000, tmp_path / "homes" / "root", True)
    assert "linus" in accounts.summary
    assert "\n" not in accounts.summary


def test_root_is_never_shared(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        with pytest.raises(EngineError, match="root"):
            opened(tmp_path, privileged=False).resolve("ada")
    assert Accounts(tmp_path, tmp_path).privileged == (os.geteuid() == 0)


def test_numbers_of_the_directory_are_taken(
    tmp_path: Path, machine: dict[str, list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = tmp_path / "group"
    groups.write_text("docker:x:5000:\nbroken\n")
    monkeypatch.setattr(accounts, "GROUPS", groups)
    asked = PosixIdentity(uid=2001, gid=3001, gids=(27, 3001, 3002, 5000, 65534))
    found = opened(tmp_path).resolve("ada", asked)
    assert (found.uid, found.gid, found.groups) == (2001, 3001, (3002,))
    assert machine["ada"] == [2001, 3001]
    assert not (tmp_path / "accounts" / "uids.json").exists()


@pytest.mark.parametrize(
    ("uid", "gid", "told"),
    [
        (0, 3001, "uid of the directory is 0"),
        (2001, 0, "gid of the directory is 0"),
        (999, 3001, "should be 1000 or larger"),
        (65534, 3001, "not 65534"),
        (2001, 27, "gid of the directory is 27"),
        (2001, 5000, "the machine's group 'docker'"),
        (1000, 3001, "the machine's account 'linus'"),
        (61184, 3001, "the number that 'grace' has here"),
        (2_013_265_999, 3001, "that Carrel gives out"),
    ],
)
def test_numbers_of_somebody_else_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uid: int, gid: int, told: str
) -> None:
    groups = tmp_path / "group"
    groups.write_text("docker:x:5000:\n")
    monkeypatch.setattr(accounts, "GROUPS", groups)
    (tmp_path / "accounts").mkdir()
    (tmp_path / "accounts" / "uids.json").write_text(json.dumps({"grace": 61184}))
    with pytest.raises(AccountRefused, match=told):
        opened(tmp_path).resolve("ada", PosixIdentity(uid=uid, gid=gid))
