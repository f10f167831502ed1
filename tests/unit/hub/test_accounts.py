"""Accounts: the file, its hashes, the brake on guessing, the commands."""

import asyncio
import stat
import threading
from pathlib import Path

import pytest
from typer.testing import CliRunner

from carrel_hub.accounts import command, passwords
from carrel_hub.accounts.sources import source_of
from carrel_hub.accounts.store import AccountError, AccountStore
from carrel_hub.accounts.throttle import (
    HASHES_AT_ONCE,
    MOST_COUNTERS,
    MOST_WAITING,
    Busy,
    HashingSlots,
    Throttle,
)

PASSWORD = "correct-horse"


@pytest.fixture
def accounts(tmp_path: Path) -> AccountStore:
    return AccountStore(tmp_path / "hub" / "accounts.json")


def test_passwords_are_salted_and_right_ones_match() -> None:
    one, other = passwords.hash_password(PASSWORD), passwords.hash_password(PASSWORD)
    assert one != other
    assert PASSWORD not in one
    assert passwords.verify(PASSWORD, one)
    assert not passwords.verify("correct-horsf", one)


@pytest.mark.parametrize(
    "stored", ["", "x", "scrypt$1$2", "md5$1$8$1$AAAA$AAAA", "scrypt$a$b$c$d$e"]
)
def test_a_damaged_hash_matches_nothing(stored: str) -> None:
    assert not passwords.verify("", stored)
    assert not passwords.verify(PASSWORD, stored)


def test_generated_passwords_differ_and_can_be_read_aloud() -> None:
    made = {passwords.generate() for _ in range(50)}
    assert len(made) == 50
    assert all(set(one) <= set(passwords.ALPHABET) | {"-"} and len(one) == 19 for one in made)


def test_the_file_is_for_its_owner_alone(accounts: AccountStore) -> None:
    accounts.add("ada", PASSWORD)
    assert stat.S_IMODE(accounts.path.stat().st_mode) == 0o600
    assert PASSWORD not in accounts.path.read_text()
    assert not list(accounts.path.parent.glob(".accounts-*"))


def test_changes_are_seen_by_another_reader(accounts: AccountStore) -> None:
    reader = AccountStore(accounts.path)
    assert reader.all() == {}
    accounts.add("ada", PASSWORD, admin=True)
    found = reader.find("ada")
    assert found is not None
    assert found.admin
    accounts.set_password("ada", "another-horse")
    again = reader.find("ada")
    assert again is not None
    assert passwords.verify("another-horse", again.password)
    accounts.remove("ada")
    assert reader.all() == {}


def test_what_the_hub_still_has_to_do_is_asked_for_until_it_is_done(accounts: AccountStore) -> None:
    accounts.add("ada", PASSWORD, joins=["vision", "speech"])
    new = accounts.all()["ada"]
    assert (new.joins, new.revoke) == (["vision", "speech"], "everything")
    accounts.set_password("ada", "another-horse")
    accounts.applied("ada", new)
    assert accounts.all()["ada"].revoke == "everything", "it changed since it was seen"
    accounts.applied("ada", accounts.all()["ada"])
    assert (accounts.all()["ada"].joins, accounts.all()["ada"].revoke) == ([], "")
    accounts.set_password("ada", PASSWORD)
    assert accounts.all()["ada"].revoke == "sessions"
    accounts.applied("nobody", new)
    assert list(accounts.all()) == ["ada"]


@pytest.mark.parametrize(
    "name", ["root", "daemon", "nobody", "system", "carrel", "console", "gateway", "carrel-setup"]
)
def test_reserved_names_are_refused(accounts: AccountStore, name: str) -> None:
    with pytest.raises(AccountError, match="is reserved"):
        accounts.add(name, PASSWORD)


@pytest.mark.parametrize(
    "name", ["", "Ada", "ada lovelace", "../ada", "-ada", "ada-", "a" * 33, "ada\n", "a/b"]
)
def test_bad_names_are_refused(accounts: AccountStore, name: str) -> None:
    with pytest.raises(AccountError, match="cannot be a user name"):
        accounts.add(name, PASSWORD)


def test_other_refusals_are_sentences(accounts: AccountStore) -> None:
    accounts.add("ada", PASSWORD)
    with pytest.raises(AccountError, match="already an account ada"):
        accounts.add("ada", PASSWORD)
    with pytest.raises(AccountError, match="at least 8"):
        accounts.add("grace", "short")
    with pytest.raises(AccountError, match="no account grace"):
        accounts.remove("grace")
    with pytest.raises(AccountError, match="no account grace"):
        accounts.set_password("grace", PASSWORD)
    accounts.path.write_text("{")
    with pytest.raises(AccountError, match="cannot be read"):
        accounts.all()


def test_concurrent_changes_lose_nothing(accounts: AccountStore) -> None:
    names = [f"user{number}" for number in range(6)]
    threads = [
        threading.Thread(target=lambda name=name: AccountStore(accounts.path).add(name, PASSWORD))
        for name in names
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(accounts.all()) == names


def test_guessing_is_slowed_for_its_source_and_forgiven() -> None:
    now = [0.0]
    throttle = Throttle(lambda: now[0])
    for _ in range(5):
        assert throttle.begin("192.0.2.1", "ada") == 0
    assert throttle.begin("192.0.2.1", "ada") == pytest.approx(60)
    assert throttle.begin("192.0.2.1", "grace") == 0
    assert throttle.begin("192.0.2.2", "ada") == 0
    now[0] = 59.0
    assert throttle.begin("192.0.2.1", "ada") == pytest.approx(1)
    now[0] = 61.0
    assert throttle.begin("192.0.2.1", "ada") == 0
    throttle.succeeded("192.0.2.1", "ada")
    assert [throttle.begin("192.0.2.1", "ada") for _ in range(5)] == [0] * 5


def test_a_source_has_so_many_attempts_whatever_the_names() -> None:
    throttle = Throttle(lambda: 0.0)
    waits = [throttle.begin("192.0.2.1", f"user{number}") for number in range(40)]
    assert waits[:30] == [0] * 30
    assert all(wait > 0 for wait in waits[30:])
    assert throttle.begin("192.0.2.2", "user1") == 0


def test_people_behind_one_address_who_know_their_passwords_are_not_slowed() -> None:
    throttle = Throttle(lambda: 0.0)
    for number in range(100):
        assert throttle.begin("192.0.2.1", f"user{number}") == 0
        throttle.succeeded("192.0.2.1", f"user{number}")


def test_counters_are_bounded_and_go_after_a_minute() -> None:
    now = [0.0]
    throttle = Throttle(lambda: now[0])
    for number in range(MOST_COUNTERS + 10):
        throttle.begin(f"source{number}", "ada")
    assert len(throttle) <= 2 * MOST_COUNTERS
    now[0] = 61.0
    assert len(throttle) == 0


@pytest.mark.parametrize(
    ("forwarded", "trusted", "source"),
    [
        ("", (), "127.0.0.1"),
        ("192.0.2.7", (), "192.0.2.7"),
        ("198.51.100.1, 192.0.2.7", (), "192.0.2.7"),
        ("198.51.100.1, 192.0.2.7", ("192.0.2.7",), "198.51.100.1"),
        ("2001:db8:1:2:3::4", (), "2001:db8:1:2::/64"),
        ("::ffff:192.0.2.7", (), "192.0.2.7"),
        ("unknown", (), "127.0.0.1"),
    ],
)
def test_the_source_is_what_our_own_proxy_saw(
    forwarded: str, trusted: tuple[str, ...], source: str
) -> None:
    assert source_of(forwarded, "127.0.0.1", trusted) == source


async def test_few_passwords_are_hashed_at_once_and_few_wait() -> None:
    slots, release = HashingSlots(), asyncio.Event()
    inside = 0

    async def attempt() -> None:
        nonlocal inside
        async with slots.one():
            inside += 1
            await release.wait()

    attempts = [asyncio.create_task(attempt()) for _ in range(HASHES_AT_ONCE + MOST_WAITING)]
    await asyncio.sleep(0)
    assert inside == HASHES_AT_ONCE
    with pytest.raises(Busy):
        await attempt()
    release.set()
    await asyncio.gather(*attempts)
    assert inside == HASHES_AT_ONCE + MOST_WAITING


def run(folder: Path, *arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(command.app, [*arguments, "--state-dir", str(folder)])
    return result.exit_code, result.output


def test_the_commands(tmp_path: Path) -> None:
    code, said = run(tmp_path, "list")
    assert (code, "There is no Carrel in" in said) == (1, True)
    (tmp_path / "hub").mkdir()
    code, said = run(tmp_path, "add", "ada", "-p", "vision")
    assert code == 0
    password = said.split()[1]
    accounts = AccountStore(tmp_path / "hub" / "accounts.json")
    ada = accounts.all()["ada"]
    assert passwords.verify(password, ada.password)
    assert ada.joins == ["vision"]
    assert run(tmp_path, "add", "ada")[0] == 1
    code, said = run(tmp_path, "password", "ada")
    assert code == 0
    assert passwords.verify(said.split()[1], accounts.all()["ada"].password)
    assert run(tmp_path, "add", "root2", "--admin")[0] == 0
    _, said = run(tmp_path, "list")
    assert "manage everything" in said
    assert run(tmp_path, "remove", "ada")[0] == 0
    code, said = run(tmp_path, "remove", "ada")
    assert (code, "There is no account ada." in said) == (1, True)


def test_a_link_chooses_a_password_once(accounts: AccountStore) -> None:
    token = accounts.invite("ada", 100.0, joins=["vision"])
    made = accounts.all()["ada"]
    assert (made.password, made.joins, made.revoke) == ("", ["vision"], "everything")
    assert token not in accounts.path.read_text()
    assert not passwords.verify("", made.password)
    assert accounts.is_invited("ada", token, 99.0)
    for wrong in (("ada", token + "x", 99.0), ("ada", "", 99.0), ("eve", token, 99.0)):
        assert not accounts.is_invited(*wrong)
    with pytest.raises(AccountError, match="too short"):
        accounts.accept("ada", token, "short", 99.0)
    accounts.accept("ada", token, PASSWORD, 99.0)
    assert passwords.verify(PASSWORD, accounts.all()["ada"].password)
    with pytest.raises(AccountError, match="does not count"):
        accounts.accept("ada", token, "another-horse", 99.0)


def test_a_link_is_too_old_or_replaced(accounts: AccountStore) -> None:
    old = accounts.invite("ada", 100.0)
    assert not accounts.is_invited("ada", old, 100.0)
    new = accounts.invite("ada", 200.0)
    assert not accounts.is_invited("ada", old, 99.0)
    accounts.set_password("ada", PASSWORD)
    assert not accounts.is_invited("ada", new, 99.0)


def test_a_link_for_an_account_leaves_it_as_it_is_until_it_is_used(accounts: AccountStore) -> None:
    accounts.add("ada", PASSWORD, admin=True)
    accounts.applied("ada", accounts.all()["ada"])
    token = accounts.invite("ada", 100.0, admin=False)
    account = accounts.all()["ada"]
    assert (account.admin, account.revoke) == (True, "")
    assert passwords.verify(PASSWORD, account.password)
    accounts.accept("ada", token, "another-horse", 1.0)
    assert accounts.all()["ada"].revoke == "sessions"


def test_the_last_admin_stays_one(accounts: AccountStore) -> None:
    accounts.add("ada", PASSWORD, admin=True)
    with pytest.raises(AccountError, match="the only admin"):
        accounts.set_admin("ada", admin=False)
    accounts.add("bea", PASSWORD)
    accounts.set_admin("bea", admin=True)
    accounts.set_admin("ada", admin=False)
    assert [one.admin for one in accounts.all().values()] == [False, True]
