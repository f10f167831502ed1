"""One control plane for all tests that need one, started when the first asks for it."""

from collections.abc import Iterator

import pytest

from k8s.cluster import binaries, control_plane
from k8s.cluster.control_plane import ControlPlane
from k8s.cluster.records import Record


@pytest.fixture(scope="session")
def plane() -> Iterator[ControlPlane]:
    """A running control plane. Its programs are built at the first use on a machine."""
    programs = binaries.control_plane(lambda line: print(line, flush=True))
    record = Record.begin()
    try:
        yield control_plane.start(programs, record)
    finally:
        record.end()
