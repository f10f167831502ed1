"""Commands as another package of the distribution would bring them."""

from typing import Annotated

import typer

app = typer.Typer()


def up(
    words: Annotated[list[str] | None, typer.Argument()] = None,
    gpus: Annotated[int, typer.Option("--gpus")] = 4,
) -> None:
    """Start."""
    typer.echo(f"up with {gpus} GPUs and {' '.join(words or [])}")


@app.command()
def add(name: str) -> None:
    """Add."""
    typer.echo(f"added {name}")


@app.command()
def refuse() -> None:
    """Refuse."""
    raise typer.Exit(4)
