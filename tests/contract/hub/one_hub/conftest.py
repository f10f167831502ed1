"""One Hub for all tests of this folder."""

from collections.abc import Iterator

import pytest

from contract.hub.conftest import PEOPLE
from contract.hub.stack import Stack


@pytest.fixture(scope="package")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("hub"), PEOPLE) as running:
        yield running
