"""One product for all tests of this folder: starting it takes a while."""

from collections.abc import Iterator

import pytest

from e2e.stack import Stack, running_stack


@pytest.fixture(scope="package")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running_stack(tmp_path_factory.mktemp("up") / "state") as stack:
        yield stack
