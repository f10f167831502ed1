"""Amounts and times as people write and read them."""

import pytest

from carrel import units
from carrel.cli import cells
from carrel.errors import BadSetting
from carrel.models import Amounts, ProjectUse


@pytest.mark.parametrize(
    ("text", "amount"),
    [("1024", 1024), ("512M", 2**29), ("4G", 2**32), ("4Gi", 2**32), ("1.5GiB", 3 * 2**29)],
)
def test_memory_is_read(text: str, amount: int) -> None:
    assert units.memory_bytes(text) == amount


@pytest.mark.parametrize(("text", "amount"), [("2", 2000), ("0.5", 500), ("250m", 250)])
def test_processors_are_read(text: str, amount: int) -> None:
    assert units.cpu_millicores(text) == amount


@pytest.mark.parametrize(
    ("text", "span"), [("30", 30), ("45s", 45), ("10m", 600), ("8h", 28_800), ("2d", 172_800)]
)
def test_spans_are_read(text: str, span: float) -> None:
    assert units.seconds(text, "--since") == span


@pytest.mark.parametrize("text", ["", "-1", "five", "1y", "1h30m"])
def test_what_is_no_span_is_refused(text: str) -> None:
    with pytest.raises(BadSetting, match="--since"):
        units.seconds(text, "--since")


@pytest.mark.parametrize(
    ("span", "text"),
    [
        (-3, "0 s"),
        (45.9, "45 s"),
        (60, "1 min"),
        (3599, "59 min"),
        (11_100, "3 h 05 min"),
        (187_200, "2 d 4 h"),
    ],
)
def test_durations_are_written(span: float, text: str) -> None:
    assert units.duration(span) == text


def test_amounts_are_written() -> None:
    assert [units.gpus(value) for value in (0, 0.5, 1, 2)] == [
        "0 GPUs",
        "0.5 GPU",
        "1 GPU",
        "2 GPUs",
    ]
    assert units.memory(2**29) == "512 MiB"
    assert units.memory(3 * 2**30 // 2) == "1.5 GiB"
    assert units.number(1234.5) == "1,234.5"


@pytest.mark.parametrize(
    ("held", "borrowed", "quota", "line"),
    [
        (5, 2, 4, "███░|▒▒ 3/4 +2"),
        (0, 0, 2, "░░| 0/2"),
        (2, 0, 2, "██| 2/2"),
        (0, 0, 0, "| 0/0"),
        (64, 0, 64, "████████████████| 64/64"),
        (3, 0, None, "███ 3"),
    ],
)
def test_the_quota_line(held: float, borrowed: float, quota: float | None, line: str) -> None:
    use = ProjectUse(gpus_allocated=held, gpus_borrowed=borrowed)
    assert cells.quota_line(use, Amounts(gpus=quota)) == line
