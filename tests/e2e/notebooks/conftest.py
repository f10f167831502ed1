"""One product for all tests of this folder: starting it takes a while."""

from collections.abc import Iterator

import pytest

from e2e.stack import Stack


@pytest.fixture(scope="package")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """``carrel up --demo``, ended with everything that it started."""
    stack = Stack(tmp_path_factory.mktemp("up") / "state")
    try:
        stack.start()
        yield stack
    finally:
        stack.stop(jobs=True)
