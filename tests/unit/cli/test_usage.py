"""``carrel usage``: what it sums up by, and files for other programs."""

from pathlib import Path

import pytest

from carrel.testing import FakeScheduler
from unit.cli.conftest import Run


@pytest.fixture
def used(fake: FakeScheduler) -> None:
    """Use of two GPU types."""
    lines = [{"key": "H100", "gpu_seconds": 7200.0}, {"key": "(none)", "cpu_seconds": 60.0}]
    fake.usage_facts.update(items=lines)


@pytest.mark.usefixtures("used")
def test_use_is_summed_up_by_gpu_type(run: Run) -> None:
    shown = run("usage", "--by", "gpu-type").out.splitlines()
    assert shown[0].startswith("GPU-TYPE  GPU-HOURS")
    assert shown[1].split()[:2] == ["H100", "2.00"]


@pytest.mark.usefixtures("used")
def test_a_file_is_written_as_the_service_makes_it(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "use.parquet"
    assert run("usage", "--by", "node-group", "--format", "parquet", "--file", str(file)).out == ""
    assert file.read_bytes() == b"node-group\nH100\n(none)"
    assert run("usage", "--format", "csv").out == "project\nH100\n(none)"


def test_files_that_cannot_be_are_refused(run: Run, tmp_path: Path) -> None:
    without = run("usage", "--file", "use.csv")
    assert (without.code, "give --format" in without.err) == (2, True)
    folder = run("usage", "--format", "csv", "--file", str(tmp_path))
    assert (folder.code, f"--file {tmp_path} cannot be written: Is a directory." in folder.err) == (
        2,
        True,
    )
