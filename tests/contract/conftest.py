"""Real processes take their time on a busy machine: more than the limit that unit tests have."""

from pathlib import Path

import pytest

HERE = Path(__file__).parent
LIMIT_SECONDS = 1200


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A limit for those that name none; it ends what hangs, and hurries nobody."""
    for item in items:
        if item.path.is_relative_to(HERE) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(LIMIT_SECONDS))
