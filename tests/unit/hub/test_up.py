"""``carrel up``: what it refuses with a sentence, and the small parts it is made of."""

import errno
import io
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest
import typer
from msgspec.structs import replace
from rich.console import Console
from typer.testing import CliRunner

from carrel.client import AsyncClient
from carrel.models import Device, Node, Workload, WorkloadSpec
from carrel.testing import FakeScheduler
from carrel_hub.accounts.store import AccountStore
from carrel_hub.keys import Keys
from carrel_hub.settings import InstallationSettings, Ports
from carrel_hub.state_folder import default_state_dir, is_running
from carrel_hub.up import checks, machine, parts, ports
from carrel_hub.up import screen as screens
from carrel_hub.up.bootstrap import first_accounts, first_projects
from carrel_hub.up.checks import StartupError, only_one
from carrel_hub.up.command import up
from carrel_hub.up.options import mebibytes
from carrel_hub.up.screen import Screen
from carrel_hub.up.supervisor import last_line, rotate

PORTS = Ports(hub=1001, proxy_api=1002, scheduler=1003, console=1004, gateway=1005)


@pytest.fixture
def cli() -> typer.Typer:
    app = typer.Typer()
    app.command()(up)
    return app


def refused(cli: typer.Typer, *arguments: str) -> str:
    result = CliRunner().invoke(cli, list(arguments))
    assert result.exit_code == 1, result.output
    assert "Traceback" not in result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return " ".join(result.output.split())


def test_an_unwritable_folder_is_a_sentence(cli: typer.Typer) -> None:
    said = refused(cli, "--state-dir", "/proc/carrel")
    assert "state folder /proc/carrel cannot be written" in said
    assert "--state-dir" in said


def test_a_file_in_the_folders_place_is_a_sentence(cli: typer.Typer, tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    assert "cannot be written" in refused(cli, "--state-dir", str(tmp_path / "state"))


def test_a_second_start_is_a_sentence(cli: typer.Typer, tmp_path: Path) -> None:
    with only_one(tmp_path):
        said = refused(cli, "--state-dir", str(tmp_path))
    assert f"runs already with the state folder {tmp_path} (process {os.getpid()})" in said


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--gpu-memory", "lots"], "--gpu-memory 'lots' is no amount of memory; write 512M or 4G."),
        (["--gpu-memory", "24"], "--gpu-memory '24' is less than 1 MiB; write 24G or 24576M."),
        (["--tls-cert", "c.pem"], "--tls-cert and --tls-key belong together: give both."),
        (["--tls-cert", "c", "--tls-key", "k"], "are no certificate and its key (PEM): No such"),
        (["--tls-cert", "c", "--acme-domain", "x.org"], "exclude each other: choose one."),
        (["--plain-port", "80"], "--plain-port needs TLS: --tls-cert and --tls-key, or"),
        (["--acme-domain", "gpu", "--acme-email", "a@b"], "--acme-domain is 'gpu'; it should be a"),
        (["--acme-domain", "gpu.example.org"], "--acme-email is ''; it should be an address"),
        (["--trusted-proxy", "proxy"], "10.1.2.3 or 10.1.0.0/16 is right."),
    ],
)
def test_bad_options_are_sentences(
    cli: typer.Typer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    expected: str,
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert expected in refused(cli, "--state-dir", str(tmp_path), *arguments)
    assert not (tmp_path / "hub").exists()


def test_an_old_python_is_a_sentence() -> None:
    with pytest.raises(StartupError, match=r"needs Python 3\.11 or newer; this is 3\.9"):
        checks.check_python((3, 9))
    checks.check_python((3, 14))


def test_a_missing_module_is_a_sentence() -> None:
    with pytest.raises(StartupError, match=r"no-such is not installed: run .*pip install"):
        checks.check_modules({"no_such_module": "no-such"})
    checks.check_modules({"json": "json"})


class FakeSocket:
    """Refuses to bind; unit tests have no network."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def setsockopt(self, *_: object) -> None: ...

    def bind(self, _: object) -> None:
        raise OSError(self.number, os.strerror(self.number))


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (errno.EADDRINUSE, "Port 8000 is taken by another program"),
        (errno.EACCES, "choose one above 1023"),
        (errno.EADDRNOTAVAIL, "Cannot listen on 127.0.0.1 port 8000"),
    ],
)
def test_a_taken_port_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, number: int, expected: str
) -> None:
    monkeypatch.setattr(socket, "socket", lambda *_: FakeSocket(number))
    with pytest.raises(StartupError, match=expected):
        checks.check_port("127.0.0.1", 8000)


def test_the_folder_is_for_its_owner_alone(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "state"
    checks.prepare_folder(folder)
    folder.chmod(0o755)
    checks.prepare_folder(folder)
    for one in (folder, *folder.iterdir()):
        assert stat.S_IMODE(one.stat().st_mode) == 0o700


def test_the_lock_ends_with_its_holder(tmp_path: Path) -> None:
    assert not is_running(tmp_path)
    with only_one(tmp_path):
        assert is_running(tmp_path)
    assert not is_running(tmp_path)


@pytest.mark.parametrize(
    ("text", "mib"), [("24G", 24576), ("24GiB", 24576), ("24576M", 24576), ("1.5g", 1536)]
)
def test_sizes(text: str, mib: int) -> None:
    assert mebibytes(text, "--gpu-memory") == mib


def test_the_default_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert default_state_dir() == tmp_path / "carrel"
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_state_dir() == tmp_path / ".local" / "state" / "carrel"


def test_first_accounts_of_the_demo_are_made_once(tmp_path: Path) -> None:
    accounts = AccountStore(tmp_path / "accounts.json")
    made = {one.name: one for one in first_accounts(accounts, demo=True)}
    assert set(made) == {"ada", "grace", "admin"}
    assert (made["ada"].projects, made["grace"].projects) == (("vision",), ("speech",))
    assert made["admin"].admin
    assert not made["ada"].admin
    assert made["ada"].password not in repr(made)
    assert first_accounts(accounts, demo=True) == []
    accounts.remove("grace")
    assert [one.name for one in first_accounts(accounts, demo=True)] == ["grace"]


@pytest.mark.parametrize(("owner", "name"), [("ada", "ada"), ("root", "admin"), ("Ada L", "admin")])
def test_the_first_account_is_the_owners(tmp_path: Path, owner: str, name: str) -> None:
    accounts = AccountStore(tmp_path / "accounts.json")
    (made,) = first_accounts(accounts, demo=False, owner=owner)
    assert (made.name, made.admin, made.projects) == (name, True, ("research",))
    assert first_accounts(accounts, demo=False, owner="other") == []


@pytest.fixture
def fake() -> Iterator[FakeScheduler]:
    with FakeScheduler({}, admins=["setup"]) as running:
        yield running


@pytest.mark.parametrize(
    ("demo", "gpus", "shares"),
    [
        (True, 4, {"vision": 2, "speech": 2}),
        (True, 3, {"vision": 2, "speech": 1}),
        (False, 8, {"research": 8}),
    ],
)
async def test_first_projects(
    fake: FakeScheduler, demo: bool, gpus: float, shares: dict[str, float]
) -> None:
    async with AsyncClient(fake.url, fake.token("setup")) as client:
        assert await first_projects(client, gpus, demo=demo) == list(shares)
        assert await first_projects(client, gpus, demo=demo) == []
        found = {one.name: one.quota.gpus for one in await client.list_projects()}
    assert found == shares


async def test_projects_of_ones_own_are_left_alone(fake: FakeScheduler) -> None:
    fake.project("mine", quota={"gpus": 1})
    async with AsyncClient(fake.url, fake.token("setup")) as client:
        assert await first_projects(client, 4, demo=False) == []


def test_gpus_are_called_simulated_or_not() -> None:
    one = Device(index=0, name="A10", memory_mib=24576, simulated=True)
    assert screens.gpu_line([Node(name="n", devices=[one] * 4)]) == (
        "4 simulated GPUs (A10, 24 GiB each)"
    )
    real = Device(index=0, name="NVIDIA H200", memory_mib=143360)
    assert screens.gpu_line([Node(name="n", devices=[real])]) == "1 GPU (NVIDIA H200, 140 GiB)"
    assert screens.gpu_line([Node(name="n")]) == "none"


def test_the_account_line_says_whether_users_are_kept_apart() -> None:
    assert "of that user's own" in screens.account_line(privileged=True)
    assert "all work runs as ada" in screens.account_line(privileged=False, account="ada")


def test_the_summary_shows_passwords_once(tmp_path: Path) -> None:
    settings = InstallationSettings(state_dir=tmp_path, ports=PORTS)
    new = first_accounts(AccountStore(tmp_path / "accounts.json"), demo=True)
    out = io.StringIO()
    screen = Screen(Console(file=out, width=200, highlight=False))
    screen.ready(settings, new, "4 simulated GPUs", "each on its own")
    said = out.getvalue()
    assert "http://127.0.0.1:8000" in said
    assert all(account.password in said for account in new)
    assert "Shown this once" in said
    assert "sign in as ada, press Start, and invite others" in said
    assert "carrel login --url http://127.0.0.1:8000\n" in said
    assert "carrel-demo.ipynb" in "".join(screens.next_steps(replace(settings, demo=True), new))
    out.truncate(0)
    screen.ready(settings, [], "4 simulated GPUs", "each on its own")
    assert "carrel user password NAME" in out.getvalue()
    assert not any(account.password in out.getvalue() for account in new)
    assert "Next:" not in out.getvalue()


def test_listening_to_the_world_is_said(tmp_path: Path) -> None:
    out = io.StringIO()
    screen = Screen(Console(file=out, width=200, highlight=False))
    screen.ready(
        InstallationSettings(state_dir=tmp_path, host="0.0.0.0", ports=PORTS), [], "none", "x"
    )
    assert "It listens on 0.0.0.0" in out.getvalue()


def test_large_logs_are_put_aside(tmp_path: Path) -> None:
    log = tmp_path / "hub.log"
    rotate(log)
    log.write_text("long")
    rotate(log, most_bytes=10)
    assert log.exists()
    rotate(log, most_bytes=3)
    assert not log.exists()
    assert (tmp_path / "hub.log.1").read_text() == "long"


def test_farewell() -> None:
    workspace = Workload(name="w", project="p", spec=WorkloadSpec(kind="workspace"))
    job = Workload(name="j", project="p")
    assert screens.stop_summary([], stopped=False) == "Stopped. Nothing was running."
    assert screens.stop_summary([workspace, job, job], stopped=False).startswith(
        "Stopped. 1 workspace and 2 jobs go on; the next `carrel up` finds them again"
    )
    assert "1 job goes on" in screens.stop_summary([job], stopped=False)
    assert "`carrel resume NAME`" in screens.stop_summary([job], stopped=True)
    assert "go on" in screens.stop_summary(None, stopped=False)


async def test_everything_is_suspended_on_request(fake: FakeScheduler) -> None:
    fake.project("vision")
    fake.submit("vision", "a")
    fake.run("vision", "a")
    async with AsyncClient(fake.url, fake.token("setup")) as client:
        left = await machine.running(client)
        assert left is not None
        await machine.suspend_all(client, left)
        assert await machine.running(client) == []


def test_each_part_is_told_its_own_secrets_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUPYTERHUB_API_TOKEN", "of-another-hub")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "mine")
    keys = Keys.generate()
    settings = InstallationSettings(state_dir=tmp_path, ports=PORTS, managed=False)
    found = parts.all_parts(settings, keys, tmp_path / "config.py")
    assert [part.name for part in found] == ["proxy", "hub", "scheduler", "console", "gateway"]
    secrets = {name: getattr(keys, name) for name in keys.__struct_fields__}
    for part in found:
        values = set(part.environment.values())
        told = {name for name, secret in secrets.items() if secret in values}
        # The proxy finds a hash of its key in the Hub's file.
        assert told == {"hub": {"crypt"}, "proxy": set()}.get(part.name, {part.name})
        assert not {"of-another-hub", "mine"} & values
        assert not any(secret in " ".join(part.command) for secret in secrets.values())
        assert not any(secret in repr(part) for secret in secrets.values())


def test_the_scheduler_hears_the_rules_that_an_admin_sets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = {"CARREL_RECLAIM_DELAY": "450", "CARREL_PAST_USE_FACTOR": "0.5"}
    for name, value in rules.items():
        monkeypatch.setenv(name, value)
    settings = InstallationSettings(state_dir=tmp_path, ports=PORTS, managed=False)
    found = parts.all_parts(settings, Keys.generate(), tmp_path / "config.py")
    for part in found:
        told = {name: part.environment[name] for name in rules if name in part.environment}
        assert told == (rules if part.name == "scheduler" else {})


def test_the_hubs_configuration_holds_no_secret(tmp_path: Path) -> None:
    settings = InstallationSettings(state_dir=tmp_path, ports=PORTS)
    keys_file = tmp_path / "keys.json"
    keys = Keys.load_or_create(keys_file)
    parts.write_config(settings, tmp_path / "s.json", keys_file, tmp_path / "c.py")
    for file in (tmp_path / "s.json", tmp_path / "c.py"):
        assert not any(getattr(keys, name) in file.read_text() for name in keys.__struct_fields__)
    compile((tmp_path / "c.py").read_text(), "c.py", "exec")


def test_the_last_word_of_a_log(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    assert last_line(log) == ""
    log.write_text("")
    assert last_line(log) == "it said nothing."
    log.write_text("first\nOSError: no space left\n\n")
    assert last_line(log) == "OSError: no space left."


def test_damaged_ports_are_chosen_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "_choose", lambda: PORTS)
    monkeypatch.setattr(ports, "_is_free", lambda port: port != 1003)
    file = tmp_path / "ports.json"
    assert ports.load_or_choose(file) == (PORTS, False)
    assert ports.load_or_choose(file) == (PORTS, True)
    monkeypatch.setattr(ports, "_is_free", lambda _: True)
    assert ports.load_or_choose(file) == (PORTS, False)
    file.write_text("{")
    assert ports.load_or_choose(file) == (PORTS, False)


def test_what_starts_the_parts_loads_none_of_their_programs() -> None:
    """They load them themselves; twice would be two seconds more before anybody can sign in."""
    loaded = (
        "print([one for one in ('jupyterhub', 'oauthenticator', 'numpy') if one in sys.modules])"
    )
    code = f"import sys, carrel_hub.up.machine; {loaded}"
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert made.stdout.strip() == "[]"
