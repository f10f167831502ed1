"""Accounts: the file, its hashes, the brake on guessing, the commands."""

import stat
import threading
from pathlib import Path

import pytest
from typer.testing import CliRunner

from carrel_hub.accounts import command, passwords
from carrel_hub.accounts.store import AccountError, Accounts
from carrel_hub.accounts.throttle import Throttle

PASSWORD = "correct-horse"


@pytest.fixture
def accounts(tmp_path: Path) -> Accounts:
    return Accounts(tmp_path / "hub" / "accounts.json")


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


def test_the_file_is_for_its_owner_alone(accounts: Accounts) -> None:
    accounts.add("ada", PASSWORD)
    assert stat.S_IMODE(accounts.path.stat().st_mode) == 0o600
    assert PASSWORD not in accounts.path.read_text()
    assert not list(accounts.path.parent.glob(".accounts-*"))


def test_changes_are_seen_by_another_reader(accounts: Accounts) -> None:
    reader = Accounts(accounts.path)
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


def test_projects_to_join_are_handed_out_once(accounts: Accounts) -> None:
    accounts.add("ada", PASSWORD, joins=["vision", "speech"])
    assert accounts.take_joins("ada") == ["vision", "speech"]
    assert accounts.take_joins("ada") == []
    assert accounts.take_joins("nobody") == []


@pytest.mark.parametrize(
    "name", ["", "Ada", "ada lovelace", "../ada", "-ada", "ada-", "a" * 33, "ada\n", "a/b"]
)
def test_bad_names_are_refused(accounts: Accounts, name: str) -> None:
    with pytest.raises(AccountError, match="cannot be a user name"):
        accounts.add(name, PASSWORD)


def test_other_refusals_are_sentences(accounts: Accounts) -> None:
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


def test_concurrent_changes_lose_nothing(accounts: Accounts) -> None:
    names = [f"user{number}" for number in range(6)]
    threads = [
        threading.Thread(target=lambda name=name: Accounts(accounts.path).add(name, PASSWORD))
        for name in names
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(accounts.all()) == names


def test_guessing_is_slowed_and_forgiven() -> None:
    now = [0.0]
    throttle = Throttle(lambda: now[0])
    for _ in range(5):
        assert throttle.wait_seconds("ada") == 0
        throttle.failed("ada")
    assert throttle.wait_seconds("ada") == pytest.approx(60)
    assert throttle.wait_seconds("grace") == 0
    now[0] = 59.0
    assert throttle.wait_seconds("ada") == pytest.approx(1)
    now[0] = 61.0
    assert throttle.wait_seconds("ada") == 0
    throttle.failed("ada")
    throttle.succeeded("ada")
    assert throttle.wait_seconds("ada") == 0


def test_the_brake_forgets_names_rather_than_fill_memory() -> None:
    throttle = Throttle(lambda: 0.0)
    for number in range(2000):
        throttle.failed(f"user{number}")
    assert len(throttle._failures) <= 1000


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
    accounts = Accounts(tmp_path / "hub" / "accounts.json")
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
