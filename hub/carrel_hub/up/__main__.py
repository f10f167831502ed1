"""``python -m carrel_hub.up``, the same as ``carrel up``.

The version is looked at before anything is imported that an old Python could not read.
"""

import sys

from carrel_hub.up.checks import StartupError, check_distribution, check_python


def main() -> None:
    """Run ``carrel up``."""
    try:
        check_python()
        check_distribution()
    except StartupError as error:
        sys.exit(f"✗ {error}")
    import typer

    from carrel_hub.up.command import up

    typer.run(up)


if __name__ == "__main__":
    main()
