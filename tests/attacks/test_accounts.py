"""Stolen sessions, old passwords, removed people, guessed passwords, blamed others, a lost disk."""

import contextlib
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from requests.adapters import HTTPAdapter
from typing_extensions import override

from attacks.person import Person
from e2e.stack import Stack, until

CARREL = (sys.executable, "-c", "from carrel.cli.main import main; main()")
AFTER_SECONDS = 30.0
"""Services keep an answer of the Hub for 5 s, the Hub looks at accounts every second."""


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A product of our own: people are removed from it and it loses its disk."""
    folder = tmp_path_factory.mktemp("accounts")
    shots = Path(os.environ.get("CARREL_SHOTS", folder / "shots"))
    shots.mkdir(parents=True, exist_ok=True)
    stack = Stack(folder / "state", shots)
    stack.start()
    yield stack
    stack.stop(jobs=True)


def carrel(product: Stack, *words: str) -> str:
    """Run a command at the machine on the product's state folder; what it printed."""
    done = subprocess.run(
        [*CARREL, *words, "--state-dir", str(product.state_dir)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def new_person(product: Stack, name: str, *words: str) -> Person:
    """Make an account and sign in."""
    said = carrel(product, "user", "add", name, *words)
    product.passwords[name] = said.split()[1]
    return Person.of(product, name, "vision")


def copy_of(person: Person) -> Person:
    """Somebody else's browser with all of a person's cookies."""
    thief = Person(person.stack, person.name, person.project, token=person.token)
    thief.session.cookies.update(person.session.cookies)
    return thief


def opens(person: Person, path: str) -> bool:
    """Whether a page opens, instead of the form to sign in."""
    answer = person.session.get(person.stack.url + path, timeout=30)
    return answer.status_code == 200 and 'name="password"' not in answer.text


def api_status(person: Person) -> int:
    """What the scheduler's API answers to the person's token."""
    return person.api("GET", "/whoami").status_code


@pytest.mark.parametrize("path", ["/hub/home", "/services/console/"])
def test_a_copied_session_ends_when_its_owner_signs_out(product: Stack, path: str) -> None:
    with Person.of(product, "grace", "speech") as grace:
        assert opens(grace, path)
        thief = copy_of(grace)
        assert opens(thief, path)
        grace.session.get(f"{product.url}/hub/logout", timeout=30)
        until(lambda: not opens(thief, path), seconds=AFTER_SECONDS, why="the copy is worthless")


def has_nothing_left(thief: Person, new_password: str) -> None:
    """Whoever came with the old password is out, and it signs nobody in."""
    product, name = thief.stack, thief.name
    until(lambda: api_status(thief) == 401, seconds=AFTER_SECONDS, why="the token ends")
    until(
        lambda: not opens(thief, "/services/console/"),
        seconds=AFTER_SECONDS,
        why="the console's session ends",
    )
    assert not opens(thief, "/hub/home")
    again = Person(product, name, "vision")
    assert again.sign_in(product.passwords[name]).status_code == 403
    assert again.sign_in(new_password).status_code == 200
    assert opens(again, "/hub/home")


def administers_nothing(otto: Person) -> None:
    """Nor does the next of that name, who has no use for the old token."""
    until(lambda: api_status(otto) == 401, seconds=AFTER_SECONDS, why="the token ends")
    assert otto.hub("GET", "/users").status_code == 403
    with new_person(otto.stack, otto.name) as again:
        me = again.api("GET", "/whoami").json()
        assert (me["admin"], me["projects"]) == (False, [])
        assert again.hub("GET", "/users").status_code == 403
        again.token = otto.token
        assert api_status(again) == 401


def new_member(product: Stack, name: str) -> Person:
    """Somebody of a project who has everything that a thief may come by."""
    person = new_person(product, name, "--project", "vision")
    assert (opens(person, "/services/console/"), api_status(person)) == (True, 200)
    return person


def new_administrator(product: Stack, name: str) -> Person:
    """Somebody who administers everything."""
    person = new_person(product, name, "--admin", "--project", "vision")
    assert person.api("GET", "/departments").status_code == 200
    assert person.hub("GET", "/users").status_code == 200
    return person


def test_a_new_password_ends_what_a_thief_of_the_old_one_has(product: Stack) -> None:
    with new_member(product, "emmy") as thief:
        said = carrel(product, "user", "password", "emmy")
        has_nothing_left(thief, said.split()[1])


def test_a_removed_administrator_administers_nothing(product: Stack) -> None:
    with new_administrator(product, "otto") as otto:
        carrel(product, "user", "remove", "otto")
        administers_nothing(otto)


def test_both_hold_for_changes_while_the_product_is_stopped(product: Stack) -> None:
    with new_member(product, "lise") as thief, new_administrator(product, "fritz") as fritz:
        product.stop()
        said = carrel(product, "user", "password", "lise")
        carrel(product, "user", "remove", "fritz")
        product.start()
        has_nothing_left(thief, said.split()[1])
        administers_nothing(fritz)


class FromAddress(HTTPAdapter):
    """Connects from an address of its own."""

    def __init__(self, address: str) -> None:
        self._address = address
        super().__init__()

    @override
    def init_poolmanager(self, *arguments: Any, **more: Any) -> None:
        more["source_address"] = (self._address, 0)
        super().init_poolmanager(*arguments, **more)


def from_address(product: Stack, name: str, address: str) -> Person:
    """Somebody elsewhere who claims to be ``name``."""
    person = Person(product, name, "vision")
    person.session.mount("http://", FromAddress(address))
    return person


def test_a_stranger_locks_nobody_out(product: Stack) -> None:
    stranger = from_address(product, "ada", "127.0.0.2")
    seen = [stranger.sign_in(f"guess-{number}").status_code for number in range(7)]
    assert seen[:5] == [403] * 5
    assert seen[5:] == [429, 429]
    ada = from_address(product, "ada", "127.0.0.3")
    assert ada.sign_in(product.passwords["ada"]).status_code == 200


def test_who_says_to_be_elsewhere_has_no_more_attempts(product: Stack) -> None:
    stranger = from_address(product, "admin", "127.0.0.4")
    seen = []
    for number in range(7):
        headers = {"X-Forwarded-For": f"192.0.2.{number}", "X-Real-Ip": f"192.0.2.{number}"}
        stranger.session.headers.update(headers)
        seen.append(stranger.sign_in(f"guess-{number}").status_code)
    assert seen[5:] == [429, 429]


def test_strangers_learn_no_exact_version(product: Stack) -> None:
    for path in ("/hub/login", "/hub/api/", "/hub/nothing", "/services/console/"):
        answer = requests.get(product.url + path, timeout=30)
        told = f"{answer.headers} {answer.text}"
        assert "Tornado" not in told
        assert "." not in answer.headers.get("X-JupyterHub-Version", "")


def test_the_recorded_actor_is_who_did_it(product: Stack) -> None:
    with (
        Person.of(product, "ada", "vision") as ada,
        Person.of(product, "admin", "vision") as admin,
    ):
        for who, sentence in ((admin, "Suspended by admin."), (ada, "Suspended by its owner.")):
            made = ada.submit(["sleep", "600"])
            ada.running(made)
            who.client.suspend(made.project, made.name)
            reason = ada.ended(made).status.reason
            assert reason is not None
            assert reason.sentence == sentence
            past = ada.api("GET", f"/workloads/vision/{made.name}/history").json()["transitions"]
            assert sentence in {(one.get("reason") or {}).get("sentence") for one in past}


@pytest.mark.parametrize("name", ["root", "daemon", "carrel", "carrel-setup", "../ada", "Ada"])
def test_names_with_power_are_refused(product: Stack, name: str) -> None:
    with pytest.raises(AssertionError, match="cannot be a user name"):
        carrel(product, "user", "add", name)


def test_logs_hold_no_secrets(product: Stack) -> None:
    keys = (product.state_dir / "keys.json").read_text()
    secrets = [one for one in keys.split('"') if len(one) == 64]
    assert len(secrets) >= 8
    secrets += product.passwords.values()
    for log in (product.state_dir / "logs").iterdir():
        text = log.read_text(errors="replace")
        assert not [one for one in secrets if one in text], log.name


def test_nothing_that_is_written_holds_a_named_secret(product: Stack) -> None:
    planted = "planted-" + "31415"
    reference = {"T": "SECRET:hub,TOKEN"}
    with Person.of(product, "ada", "vision") as ada:
        ada.client.put_secret("hub", "user/ada", {"TOKEN": planted})
        for number, script in enumerate(('test -n "$T"', "exit 3", "sleep 600")):
            made = ada.submit(["sh", "-c", script], name=f"named-{number}", environment=reference)
            if number == 2:
                ada.running(made)
            else:
                ended = ada.ended(made)
                assert (ended.status.phase == "succeeded") == (number == 0)
        refused = ada.api(
            "PUT", "/secrets/hub?scope=user/ada", json={"data": {"T": planted}, "x": 1}
        )
        assert refused.status_code == 422
        assert planted not in refused.text
        for path in ("/secrets", "/workloads/vision/named-0", "/workloads/vision/named-1/history"):
            assert planted not in ada.api("GET", path).text
        file = product.state_dir.parent / "with-secret.backup"
        carrel(product, "backup", str(file))
        ada.client.delete_workload("vision", "named-2")
    with tarfile.open(file) as backup:
        members = [backup.extractfile(one) for one in backup.getmembers() if one.isfile()]
        assert members
        assert not [one.name for one in members if one and planted.encode() in one.read()]
    files = _contents(product.state_dir)
    assert len(files) > 20
    assert not [path for path, content in files.items() if planted.encode() in content]


def _contents(folder: Path) -> dict[Path, bytes]:
    """Every file there; the folder of a job that ends may vanish meanwhile."""
    found = {}
    for place, _, names in os.walk(folder):
        for path in (Path(place, name) for name in names):
            with contextlib.suppress(FileNotFoundError):
                if path.is_file() and not path.is_symlink():
                    found[path] = path.read_bytes()
    return found


def test_a_lost_disk_is_brought_back(product: Stack) -> None:
    with Person.of(product, "ada", "vision") as ada:
        ended = ada.ended(ada.submit(["echo", "result"], name="ended-before"))
        suspended = ada.submit(["sleep", "600"], name="suspended-before")
        ada.client.suspend("vision", suspended.name)
        ada.ended(suspended)
        holder = ada.submit(["sleep", "600"], name="holder", gpus=4)
        ada.running(holder)
        waiting = [ada.submit(["true"], name=f"waiting-{number}", gpus=2) for number in range(4)]
        history = ada.api("GET", f"/workloads/vision/{ended.name}/history").json()
        token = ada.token
        file = product.state_dir.parent / "carrel.backup"
        carrel(product, "backup", str(file))
    product.stop(jobs=True)
    while product.state_dir.exists():  # what was killed is still being cleaned up
        shutil.rmtree(product.state_dir, ignore_errors=True)
    carrel(product, "restore", str(file))
    passwords = dict(product.passwords)
    product.start()
    assert product.passwords == passwords, "no new accounts"
    with Person.of(product, "ada", "vision") as ada:
        ada.token = token
        assert ada.api("GET", "/whoami").json()["projects"] == ["vision"]
        assert ada.api("GET", f"/workloads/vision/{ended.name}/history").json() == history
        assert ada.phase(suspended) == "stopped"
        ada.delete(holder)
        for one in waiting:
            assert ada.ended(one).status.phase == "succeeded"
    with Person.of(product, "admin", "vision") as admin:
        assert {one["name"] for one in admin.api("GET", "/projects").json()["items"]} == {
            *("vision", "speech")
        }
