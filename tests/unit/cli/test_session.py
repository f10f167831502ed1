"""Signing in and out, defaults, shells, exit codes, and commands of other packages."""

import io
import os
import re
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
import typer
from aiohttp import WSMessage, WSMsgType
from typing_extensions import override

from carrel.cli import code_sign_in, main
from carrel.cli.commands import terminal
from carrel.client import Client, Terminal, config
from carrel.errors import Unreachable
from carrel.testing import FakeScheduler
from unit.cli.conftest import Run

if TYPE_CHECKING:
    from aiohttp import ClientWebSocketResponse


def test_login_with_a_token_from_standard_input(
    run: Run, fake: FakeScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CARREL_URL", "CARREL_TOKEN"):
        monkeypatch.delenv(name)
    assert run("whoami").code == 3
    monkeypatch.setattr(sys, "stdin", io.StringIO(fake.token("ada") + "\n"))
    done = run("login", "--url", fake.url, "--token-stdin")
    assert (done.code, done.out) == (0, "Signed in to URL as ada.\n")
    assert "token-of" not in done.out + done.err
    assert run("whoami").out.startswith("ada at URL")
    assert run("logout").code == 0
    assert config.load().token == ""
    done = run("whoami")
    assert (done.code, done.err.count("carrel login")) == (3, 1)


@pytest.mark.parametrize(
    ("outcome", "said", "told"),
    [
        (None, "Signed out: the token is revoked at the Hub and forgotten here.", ""),
        (
            Unreachable("Nobody answers."),
            (
                "could not be revoked at the Hub: it is forgotten here, and counts until it "
                "expires, or until you revoke it at http://hub/hub/token."
            ),
            "Nobody answers.",
        ),
    ],
)
def test_logout_revokes_the_token_that_login_got(
    run: Run, monkeypatch: pytest.MonkeyPatch, outcome: Exception | None, said: str, told: str
) -> None:
    asked: list[tuple[str, str]] = []

    def revoke(service: str, token: str) -> None:
        asked.append((service, token))
        if outcome is not None:
            raise outcome

    monkeypatch.setattr(code_sign_in, "revoke", revoke)
    monkeypatch.delenv("CARREL_TOKEN")
    url = "http://hub/services/carrel"
    config.save(config.Stored(url=url, token="ours", project="vision", by_code=True))
    done = run("logout")
    assert (done.code, asked) == (0, [(url, "ours")])
    assert said in done.out
    assert told in done.err
    assert config.load() == config.Stored(url=url, project="vision")
    assert run("logout").out == "You were not signed in here.\n"
    assert len(asked) == 1


def test_logout_leaves_tokens_that_their_owner_made(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code_sign_in, "revoke", lambda *_: pytest.fail("it is not ours"))
    config.save(config.Stored(url="http://hub/services/carrel", token="theirs"))
    monkeypatch.setenv("CARREL_TOKEN", "theirs, too")
    done = run("logout")
    assert "counts until you revoke it at http://hub/hub/token" in done.out
    assert "CARREL_TOKEN is set" in done.err
    assert config.load().token == ""


def test_a_wrong_token_is_not_kept(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("wrong\n"))
    assert run("login", "--token-stdin").code == 3
    assert not config.path().exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--token-stdin"], "no token to read"),
        (["--url", "nonsense"], "not the URL of a Carrel server"),
    ],
)
def test_login_refuses_what_cannot_be(
    run: Run, monkeypatch: pytest.MonkeyPatch, arguments: list[str], words: str
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    done = run("login", *arguments)
    assert done.code == 2
    assert words in done.err


def test_login_without_a_server(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CARREL_URL")
    assert "--url http" in run("login").err


def test_the_default_project(
    run: Run, fake: FakeScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FakeScheduler({"eve": ["a", "b"]}) as several:
        monkeypatch.setenv("CARREL_URL", several.url)
        assert run("list", "jobs", user="eve").code == 2
        assert run("config", "project", "b").out == "Project b is your default now.\n"
        assert run("list", "jobs").out.startswith("Showing jobs for project b\n")
        assert "Projects: a, b (default)" in run("whoami").out
        wrong = run("config", "project", "c")
        assert (wrong.code, "you are in: a, b" in wrong.err) == (2, True)


def test_nobody_there_is_exit_code_3(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CARREL_URL", "http+unix://%2Fnowhere/services/carrel")
    done = run("list", "jobs", "-p", "x")
    assert (done.code, done.out) == (3, "")
    assert "No answer from" in done.err


def test_groups_without_a_verb_show_what_there_is(run: Run) -> None:
    done = run("list")
    assert (done.code, "projects" in done.out + done.err) == (2, True)
    assert run("list", "--help").code == 0
    assert run("-h").code == 0
    assert "No such command 'bogus'" in run("bogus").err


def test_colours_are_for_terminals(run: Run, fake: FakeScheduler) -> None:
    fake.submit("vision", "x")
    assert "\x1b" not in run("list", "jobs").out + run("delete", "job", "nope").err


class Screen(io.StringIO):
    """A terminal, as far as anybody asks."""

    @override
    def isatty(self) -> bool:
        return True


def test_people_see_whole_rows_in_colour(
    run: Run, fake: FakeScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    fake.submit("vision", "a-job-with-a-rather-long-name-that-needs-room")
    screen = Screen()
    monkeypatch.setattr(sys, "stdout", screen)
    assert main.run(["list", "jobs"]) == 0
    row = next(line for line in screen.getvalue().splitlines() if "rather-long" in line)
    assert "Pending" in row
    assert "a-job-with-a-rather-long-name-that-needs-room" in row
    assert "0 (1)" in row
    assert "\x1b[33m" in row


def test_a_shell_beside_a_job(
    run: Run, fake: FakeScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.submit("vision", "x")
    waiting = run("bash", "x")
    assert (waiting.code, "not running" in waiting.err) == (1, True)
    fake.run("vision", "x")
    reading, writing = os.pipe()
    os.write(writing, b"exit\n")
    os.close(writing)
    with os.fdopen(reading) as typed:
        monkeypatch.setattr(sys, "stdin", typed)
        done = run("bash", "x")
    assert done.code == 0
    assert "bash" in done.out


def test_a_command_beside_a_job(
    run: Run, fake: FakeScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "Which command?" in run("exec", "x").err
    fake.submit("vision", "x")
    fake.run("vision", "x")
    with Path("/dev/null").open() as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        done = run("exec", "-it", "x", "--", "nvidia-smi", "-L")
    assert (done.code, "nvidia-smi -L" in done.out) == (0, True)


def test_pipes_to_a_command_carry_bytes_as_they_are(fake: FakeScheduler, tmp_path: Path) -> None:
    fake.submit("vision", "x")
    fake.run("vision", "x")
    sent = bytes(range(256)) * 4096
    (tmp_path / "input").write_bytes(sent)
    environment = {**os.environ, "CARREL_URL": fake.url, "CARREL_TOKEN": fake.token("ada")}
    with (tmp_path / "input").open("rb") as source:
        done = subprocess.run(
            [sys.executable, "-m", "carrel.cli", "exec", "-p", "vision", "x", "--", "cat", "-v"],
            stdin=source,
            capture_output=True,
            env=environment,
            check=False,
        )
    assert (done.returncode, done.stderr, done.stdout == sent) == (3, b"cat -v", True)


def test_the_local_terminal_is_put_back(
    fake: FakeScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pty
    import termios

    fake.submit("vision", "x")
    fake.run("vision", "x")
    keyboard, device = pty.openpty()
    before = termios.tcgetattr(device)
    with Client(fake.url, fake.token("ada")) as client, os.fdopen(device) as typed:
        monkeypatch.setattr(sys, "stdin", typed)
        os.write(keyboard, b"exit\n")
        assert terminal.attach(client.loop, client.exec("vision", "x")) == 0
        assert termios.tcgetattr(typed.fileno()) == before
    os.close(keyboard)


class Cut:
    """A connection that prints something and ends without an exit code."""

    close_code = 1006

    def __init__(self, *last: WSMessage) -> None:
        self._messages = [WSMessage(WSMsgType.TEXT, '["stdout", "half"]', None), *last]

    async def receive(self) -> WSMessage:
        return self._messages.pop(0)

    async def send_str(self, _: str) -> None:
        pass

    async def close(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("last", "words"),
    [
        (WSMessage(WSMsgType.CLOSE, 4403, "signed out"), "arrived (signed out)"),
        (WSMessage(WSMsgType.CLOSED, None, None), "arrived (1006)"),
    ],
)
def test_an_end_that_nobody_told_is_no_success(
    fake: FakeScheduler,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    last: WSMessage,
    words: str,
) -> None:
    with Client(fake.url, fake.token("ada")) as client, Path("/dev/null").open() as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        with pytest.raises(Unreachable, match=re.escape(words)):
            terminal.attach(client.loop, Terminal(cast("ClientWebSocketResponse", Cut(last))))
    assert capsys.readouterr().out == "half"


def test_commands_of_other_packages(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    points = [
        EntryPoint("up", "unit.cli.extra:up", main.GROUP),
        EntryPoint("user", "unit.cli.extra:app", main.GROUP),
        EntryPoint("gone", "package_that_is_not_there:x", main.GROUP),
    ]
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: points)
    done = run("up", "--gpus", "3", "--", "more")
    assert (done.code, done.out) == (0, "up with 3 GPUs and more\n")
    assert run("user", "add", "eve").out == "added eve\n"
    assert run("user", "refuse").code == 4
    assert "Options" in run("up", "--help").out
    bad = run("up", "--gpus", "many")
    assert (bad.code, len(bad.err.splitlines())) == (2, 1)
    gone = run("gone")
    assert (gone.code, "not installed here" in gone.err) == (1, True)
    assert "Brought by package_that_is_not_there" in run("--help").out


def test_an_interrupt_ends_with_130(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_word: str) -> typer.Typer:
        app = typer.Typer()

        @app.command()
        def wait() -> None:
            raise KeyboardInterrupt

        return app

    monkeypatch.setattr(main, "build", interrupted)
    assert run().code == 130
