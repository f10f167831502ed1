"""Shared by all tests: unit tests have no network, the other folders have loopback."""

from pathlib import Path

import pytest

HERE = Path(__file__).parent
WITH_LOOPBACK = tuple(HERE / part for part in ("contract", "e2e"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Open loopback for the folders that talk to real servers; everything else stays closed."""
    for item in items:
        if any(item.path.is_relative_to(folder) for folder in WITH_LOOPBACK):
            item.add_marker(pytest.mark.enable_socket)
