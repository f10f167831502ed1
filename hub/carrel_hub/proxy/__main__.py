"""``python -m carrel_hub.proxy``, with the options of ``configurable-http-proxy``."""

from carrel_hub.proxy.command import command

if __name__ == "__main__":
    command()
