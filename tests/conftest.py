"""Shared by all tests: unit tests have no network, the other folders have loopback."""

import gc
import os
import signal
from pathlib import Path

import aiohttp.connector
import pytest

# A test has an event loop of its own, and a resolver with an inotify instance is never freed; the
# kernel has few of those for an account.
aiohttp.connector.DefaultResolver = aiohttp.ThreadedResolver  # type: ignore[attr-defined]

# The handlers of gRPC run in every fork once there is a server, before the child becomes another
# program, and may end it or never return.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"

pytest_plugins = ["k8s.outcomes", "side_by_side"]
HERE = Path(__file__).parent
WITH_LOOPBACK = tuple(HERE / part for part in ("attacks", "contract", "e2e"))


def pytest_configure() -> None:
    """Take Ctrl-C as a terminal's programs do; what a shell starts in the background ignores it.

    Children inherit what is ignored, and several tests interrupt theirs.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGQUIT) is signal.SIG_IGN:
        signal.signal(signal.SIGQUIT, signal.SIG_DFL)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Open loopback for the folders that talk to real servers; everything else stays closed."""
    for item in items:
        if any(item.path.is_relative_to(folder) for folder in WITH_LOOPBACK):
            item.add_marker(pytest.mark.enable_socket)


def pytest_collection_finish() -> None:
    """Leave thousands of collected tests out of every later garbage collection.

    Some tests collect each time, as IPython does when its namespace is reset.
    """
    gc.collect()
    gc.freeze()
