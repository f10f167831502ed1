"""docs/cli.md names every command, no other, with the very sentence that the tool shows."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import typer

from carrel.cli.main import build
from carrel.testing import FakeScheduler

PAGE = Path(__file__).parents[3] / "docs" / "cli.md"
OPTIONS_PAGE = PAGE.with_name("options.md")
ROW = re.compile(r"^\| `carrel ([a-z -]+)`[^|]*\| (.+?) \|$", re.MULTILINE)


def commands(command: Any, words: tuple[str, ...] = ()) -> dict[str, str]:
    """Every command with the first line of its help."""
    below = getattr(command, "commands", None)
    if below is None:
        first_line = (command.help or "").split("\n")[0]
        return {" ".join(words): first_line.partition(": `")[0].rstrip(".")}
    found: dict[str, str] = {}
    for name, one in below.items():
        found |= commands(one, (*words, name))
    return found


def test_the_table_of_commands_is_complete_and_true() -> None:
    documented = {name.strip(): text.rstrip(".") for name, text in ROW.findall(PAGE.read_text())}
    assert documented == commands(typer.main.get_command(build()))


def test_every_option_of_submit_is_in_its_page() -> None:
    group: Any = typer.main.get_command(build())
    text = OPTIONS_PAGE.read_text()
    for option in group.commands["submit"].params:
        if option.param_type_name == "option" and not option.hidden and option.name != "help":
            assert f"`{option.opts[0]}`" in text, option.opts[0]


def test_exit_codes_are_in_the_page() -> None:
    text = PAGE.read_text()
    assert all(f"| {code} |" in text for code in (0, 1, 2, 3, 130))


def test_a_command_line_builds_only_what_its_first_word_needs() -> None:
    everything = commands(typer.main.get_command(build()))
    for first in ("list", "submit"):
        own = {name: text for name, text in everything.items() if name.split()[0] == first}
        assert commands(typer.main.get_command(build(first))) == own
    assert commands(typer.main.get_command(build("lst"))) == everything


def test_the_client_reads_no_folders_before_one_is_sent() -> None:
    look = "import sys, carrel.client; sys.exit('pathspec' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", look], check=False).returncode == 0


def test_the_command_line_starts_without_the_client() -> None:
    """Help, completion and versions are there before a client could be imported."""
    look = "import sys, carrel.cli.main; sys.exit('aiohttp' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", look], check=False).returncode == 0


def test_listing_jobs_needs_neither_aiohttp_nor_pydantic(fake: FakeScheduler) -> None:
    """Importing these takes longer than the command itself."""
    look = (
        "import sys; from carrel.cli.main import run; "
        "code = run(['list', 'jobs', '-p', 'vision']); "
        "sys.exit(code or int(bool({'aiohttp', 'pydantic'} & set(sys.modules))))"
    )
    service = {"CARREL_URL": fake.url, "CARREL_TOKEN": fake.token("ada")}
    done = subprocess.run([sys.executable, "-c", look], env={**os.environ, **service}, check=False)
    assert done.returncode == 0
