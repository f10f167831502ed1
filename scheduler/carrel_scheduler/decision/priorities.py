"""Priorities inside a project: a named level or an integer; larger goes first.

The four kinds follow the field's usual numbers (train 50, preemptible build 75, build 100,
inference 125); the seven levels lie between and around them.
"""

from typing import Final

NAMED: Final[dict[str, int]] = {
    "very-low": 10,
    "low": 30,
    "train": 50,
    "medium-low": 50,
    "medium": 60,
    "build-preemptible": 75,
    "medium-high": 80,
    "build": 100,
    "high": 100,
    "inference": 125,
    "very-high": 125,
}
