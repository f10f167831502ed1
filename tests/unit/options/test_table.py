"""The table, and what its options mean together."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from carrel import options
from carrel.errors import BadSetting
from carrel.options import Surface, page, values

PAGE = Path(__file__).parents[3] / "docs" / "options.md"


def fields(raw: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return options.read(raw, Surface.CLI, **more).fields


def test_the_page_is_made_from_the_table() -> None:
    assert PAGE.read_text() == page.page(), "run python -m carrel.options > docs/options.md"


@pytest.mark.parametrize("surface", [Surface.CLI, Surface.MAGIC, Surface.FORM])
def test_a_flag_is_spelt_once_and_means_one_thing_for_each_kind(surface: Surface) -> None:
    flags = options.by_flag(options.rows(surface))
    spelt = [one for rows in flags.values() for one in {*rows[0].spellings, f"--{rows[0].off}"}]
    spelt = [one for one in spelt if one != "--"]
    assert len(spelt) == len(set(spelt))
    for rows in flags.values():
        assert len({(row.value is None, row.many, row.key) for row in rows}) == 1
        kinds = [kind for row in rows for kind in row.kinds]
        assert len(kinds) == len(set(kinds))


def test_every_option_is_explained() -> None:
    for rows in options.by_flag(options.TABLE).values():
        assert options.sentence(rows)[-1:] in (".", "!")


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        ({}, "training"),
        ({"workers": "2"}, "distributed"),
        ({"elastic": True}, "training"),
        ({"interactive": True}, "workspace"),
        ({"completions": "3"}, "experiment"),
        ({"port": ["80"]}, "training"),
        ({"port": ["80"], "replicas": "1"}, "inference"),
        ({"notebook": "a.ipynb"}, "notebook"),
        ({"notebook": "a.ipynb", "schedule": "0 3 * * *"}, "schedule"),
        ({"tensorboard": "a"}, "tensorboard"),
    ],
)
def test_the_kind_follows_from_what_was_given(raw: dict[str, Any], kind: str) -> None:
    assert options.read(raw, Surface.CLI).kind == kind


def test_workers() -> None:
    assert fields({"distributed": True})["tasks"] == 1
    assert fields({"workers": "4"}) == {"tasks": 4}
    assert fields({"workers": "4", "elastic": True})["elastic"] == {"min_tasks": 1}
    both = fields({"workers": "2", "max-workers": "4"})
    assert both == {"tasks": 4, "elastic": {"min_tasks": 2}}
    assert fields({"max-workers": "4", "min-workers": "3"})["elastic"] == {"min_tasks": 3}
    launched = fields({"workers": "2", "launcher": "mpi", "join-timeout": "1m"})
    assert launched["rendezvous"] == {"launcher": "mpi", "join_timeout_seconds": 60.0}


def test_replicas_and_routes() -> None:
    assert fields({"replicas": "2"})["inference"] == {"min_replicas": 2, "max_replicas": 2}
    assert fields({"min-replicas": "2"})["inference"] == {"min_replicas": 2, "max_replicas": 2}
    assert fields({"min-replicas": "0"})["inference"] == {"min_replicas": 0, "max_replicas": 1}
    assert fields({"inference": True}) == {"inference": {}, "routes": [{}]}
    several = fields({"port": ["ui=8080", "9000"], "access": "everyone"})
    assert several["routes"] == [
        {"port": 8080, "name": "ui", "access": "everyone"},
        {"port": 9000, "access": "everyone"},
    ]


def test_switches_that_can_be_off() -> None:
    assert fields({"preemptible": False}) == {"preemptible": False}
    assert fields({"preemptible": None, "large-shm": False}) == {}


def test_variables_are_taken_along() -> None:
    environ = {"HOME": "/home/ada"}
    found = fields({"environment": ["A=b=c", "HOME"], "label": ["x=1"]}, environ=environ)
    assert found == {"environment": {"A": "b=c", "HOME": "/home/ada"}, "labels": {"x": "1"}}
    with pytest.raises(BadSetting, match="--secret NOT: there is no such variable here"):
        fields({"secret": ["NOT"]}, environ=environ)


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        ({"workers": "2", "completions": "3"}, "--completions is for an experiment, but --workers"),
        ({"min-workers": "5", "workers": "2"}, "raise --max-workers"),
        ({"min-replicas": "2", "max-replicas": "1"}, "is more than --max-replicas 1"),
        ({"cpu": "0"}, "--cpu '0' is too small; write 1m or more."),
        ({"memory": "4K"}, "--memory '4K' is too small; write 1M or more."),
        ({"gpus": "nan"}, "--gpus 'nan' is no number of GPUs; write 0, 1 or 0.5."),
        ({"checkpoint-every": "30d"}, "is too large; write at most 7d."),
        ({"restart": "maybe"}, "write on-failure, never or always."),
        ({"port": ["UI=80"]}, "a port's name has small letters"),
        ({"port": ["70000"]}, "--port '70000' is too large; write at most 65,535."),
        ({"schedule": "daily"}, "'daily' is no schedule; write five fields"),
        ({"notebook": "a", "param": ["1x=2"]}, "'1x' is no name of a variable"),
        ({"environment": ["1A=b"]}, "where NAME has letters, digits and underscores"),
        ({"name": " "}, "--name '' says nothing"),
    ],
)
def test_what_cannot_be_meant_is_one_sentence(raw: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadSetting) as refused:
        fields(raw)
    assert sentence in str(refused.value)
    assert refused.value.code


@pytest.mark.parametrize(
    ("value", "text", "read"),
    [
        (values.MEMORY, "1.5g", 3 * 2**29),
        (values.CPU, "250m", 250),
        (values.GPUS, "0.5", 0.5),
        (values.span(), "1.5h", 5400.0),
        (values.VARIABLES, "a, b", ["a", "b"]),
        (values.PRIORITY, "75", 75),
        (values.PRIORITY, "high", "high"),
        (values.PARAMETER, "n=[1, 2]", ("n", [1, 2])),
        (values.PARAMETER, "n=text", ("n", "text")),
    ],
)
def test_reads(value: values.OptionValue, text: str, read: Any) -> None:
    assert value.read(text) == read


@pytest.mark.parametrize("text", ["a b", "", "1x"])
def test_lists_of_variables(text: str) -> None:
    with pytest.raises(BadSetting, match="write their names as a,b"):
        values.VARIABLES.read(text)


def test_the_nearest_option_is_named() -> None:
    known = options.spellings(options.rows(Surface.CLI))
    told = str(options.unknown("--paralelism=3", known))
    assert told == "There is no option --paralelism; did you mean --parallelism?"
    assert str(options.unknown("--xyzzy", known)) == "There is no option --xyzzy."
