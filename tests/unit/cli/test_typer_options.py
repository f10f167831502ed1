"""Options that several commands share as one record."""

from dataclasses import dataclass
from typing import Annotated

import typer
from typer import Option
from typer.testing import CliRunner

from carrel.cli.typer_options import with_record


@dataclass(frozen=True)
class Wish:
    """What may be wished for."""

    size: Annotated[int, Option("--size", help="How large.")] = 1
    warm: Annotated[bool | None, Option("--warm/--cold", help="How warm.")] = None


def test_a_record_is_taken_as_options_in_its_place() -> None:
    taken: list[tuple[str, Wish, bool]] = []

    @with_record(Wish)
    def order(name: str, *, wish: Wish, now: bool = False) -> None:
        """Order one."""
        taken.append((name, wish, now))

    app = typer.Typer(add_completion=False)
    app.command()(order)
    command = typer.main.get_command(app)
    assert [one.name for one in command.params] == ["name", "size", "warm", "now"]
    assert command.help == "Order one."
    runner = CliRunner()
    assert runner.invoke(app, ["tea"]).exit_code == 0
    assert runner.invoke(app, ["tea", "--size", "2", "--cold", "--now"]).exit_code == 0
    assert taken == [("tea", Wish(), False), ("tea", Wish(size=2, warm=False), True)]
