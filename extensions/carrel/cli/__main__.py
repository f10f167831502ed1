"""``python -m carrel.cli``: the shell tool where its command is not on the path."""

from carrel.cli.main import main

main()
