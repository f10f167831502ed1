"""How the library says that a configuration, or a plugin of one, is of no use."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from typing_extensions import override

_LIBRARY: Final = "kubernetes_asyncio.config.kube_config"


def broken() -> tuple[type[Exception], ...]:
    """What the library raises for a configuration, or a plugin, that is not usable."""
    from kubernetes_asyncio.config import ConfigException

    of_files_and_plugins = (OSError, RuntimeError)
    of_texts = (KeyError, TypeError, ValueError, AssertionError)
    return (ConfigException, *of_files_and_plugins, *of_texts)


class _Said(logging.Filter):
    """Keeps what the library would log: it says there, and nowhere else, why a plugin failed."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.ERROR:
            return True
        self.words.append(record.getMessage())
        return False


@contextmanager
def said() -> Iterator[list[str]]:
    """The errors that the library logs meanwhile, which go no further."""
    listening, logger = _Said(), logging.getLogger(_LIBRARY)
    logger.addFilter(listening)
    try:
        yield listening.words
    finally:
        logger.removeFilter(listening)
