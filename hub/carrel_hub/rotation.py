"""``carrel keys rotate``: a new key for the secrets of work in the ledger of this machine.

The scheduler's own program does it, which no package imports; Carrel has to be stopped.
"""

import subprocess
import sys
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from carrel_hub.state_folder import default_state_dir

LEDGER_KEYS: Final = "ledger-secrets.key"

app = typer.Typer(no_args_is_help=True, help="Keys of this machine (see `carrel up`).")


@app.callback()
def keys() -> None:
    """Keys of this machine."""


@app.command()
def rotate(
    discard_unreadable: Annotated[
        bool,
        typer.Option(
            "--discard-unreadable", help="Drop secrets whose key is lost, instead of refusing."
        ),
    ] = False,
    state_dir: Annotated[Path | None, typer.Option(help="The state folder of `carrel up`.")] = None,
) -> None:
    """Encrypt the secrets of work by a new key; Carrel has to be stopped."""
    from carrel_hub.settings import InstallationSettings
    from carrel_hub.up.checks import StartupError, only_one

    state = (state_dir or default_state_dir()).expanduser().absolute()
    command = [sys.executable, "-P", "-m", "carrel_scheduler.ledger.rotate"]
    try:
        url = InstallationSettings.load(state / "hub" / "settings.json").database_url
        with only_one(state):
            done = subprocess.run(
                [*command, str(state / LEDGER_KEYS), url]
                + ["--discard-unreadable"] * discard_unreadable,
                capture_output=True,
                text=True,
                check=False,
            )
    except (OSError, msgspec.MsgspecError):
        typer.echo(f"There is no Carrel in {state}.", err=True)
        raise typer.Exit(1) from None
    except StartupError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None
    typer.echo((done.stderr if done.returncode else done.stdout).strip(), err=done.returncode != 0)
    raise typer.Exit(done.returncode)
