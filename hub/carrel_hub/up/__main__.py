"""``python -m carrel_hub.up``, the same as ``carrel up``."""

import typer

from carrel_hub.up.command import up

if __name__ == "__main__":
    typer.run(up)
