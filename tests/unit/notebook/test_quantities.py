"""Amounts as people type them."""

from collections.abc import Callable
from typing import Any

import pytest

from carrel.errors import BadSetting
from carrel.notebook import quantities as q


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        (q.memory_bytes, "4G", 4 * 2**30),
        (q.memory_bytes, "4Gi", 4 * 2**30),
        (q.memory_bytes, "512MiB", 512 * 2**20),
        (q.memory_bytes, "1.5g", 3 * 2**29),
        (q.memory_bytes, "1024", 1024),
        (q.cpu_millicores, "2", 2000),
        (q.cpu_millicores, "0.5", 500),
        (q.cpu_millicores, "250m", 250),
        (q.gpu_count, "1", 1.0),
        (q.gpu_count, "0.5", 0.5),
        (q.seconds, "30", 30.0),
        (q.seconds, "5m", 300.0),
        (q.seconds, "1.5h", 5400.0),
        (q.variable, "A=b=c", ("A", "b=c")),
        (q.names, "a, b", ["a", "b"]),
    ],
)
def test_reads(read: Callable[[str], Any], text: str, value: Any) -> None:
    assert read(text) == value


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (q.memory_bytes, "lots"),
        (q.memory_bytes, "0"),
        (q.memory_bytes, "-1G"),
        (q.cpu_millicores, "two"),
        (q.cpu_millicores, "0"),
        (q.cpu_millicores, "inf"),
        (q.gpu_count, "-1"),
        (q.gpu_count, "nan"),
        (q.gpu_count, "x"),
        (q.seconds, "soon"),
        (q.variable, "A"),
        (q.variable, "1A=b"),
        (q.names, "a b"),
        (q.names, ""),
    ],
)
def test_refuses(read: Callable[[str], Any], text: str) -> None:
    with pytest.raises((ValueError, BadSetting), match="write"):
        read(text)
