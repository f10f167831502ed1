"""Choices for a workspace: every way to get them wrong is named."""

from typing import Any

import pytest

from carrel.models import Workload, WorkloadSpec
from carrel_spawner.choices.option_checks import check, from_form
from carrel_spawner.options import (
    BadOption,
    Most,
    Sizes,
    WorkspaceChoice,
    WorkspaceChoices,
    WorkspaceProfile,
    projects_of,
)

SIZES = WorkspaceChoices(Sizes(gpus=0, cpu=1.0, memory_gib=2.0))


def test_nothing_chosen_means_the_defaults() -> None:
    assert check({}, ["speech", "vision"], SIZES) == WorkspaceChoice("speech", 0, 1.0, 2.0)


def test_form_fields_become_a_choice() -> None:
    fields = {"project": ["vision"], "gpus": ["2"], "cpu": ["0.5"], "memory_gib": [" 4 "],
              "_xsrf": ["x"], "action": ["join"]}  # fmt: skip
    choice = check(from_form(fields), ["vision"], SIZES)
    assert choice == WorkspaceChoice("vision", 2, 0.5, 4.0)
    assert (choice.cpu_millicores, choice.memory_bytes) == (500, 4 * 1024**3)


def test_empty_fields_are_not_chosen() -> None:
    assert from_form({"gpus": [""], "cpu": []}) == {}


def test_the_schedulers_units_are_understood() -> None:
    options = {"gpus": 1.0, "cpu_millicores": 1500, "memory_bytes": 3 * 1024**3, "claim": "w"}
    assert check(options, ["vision"], SIZES) == WorkspaceChoice("vision", 1, 1.5, 3.0, "w")


@pytest.mark.parametrize("written", [0.5, "0.5", 0.29])
def test_a_share_of_a_gpu_is_kept_as_it_was_asked_for(written: object) -> None:
    chosen = check({"gpus": written}, ["vision"], SIZES)
    assert chosen.gpus == float(str(written))
    assert check(chosen.options(), ["vision"], SIZES) == chosen


def test_memory_of_a_gpu_stands_in_place_of_the_usual_gpus() -> None:
    usual = WorkspaceChoices(Sizes(gpus=1))
    chosen = check({"gpu_memory_gib": "8", "gpus": ""}, ["vision"], usual)
    assert (chosen.gpus, chosen.gpu_memory_bytes) == (0, 8 * 1024**3)
    assert check(chosen.options(), ["vision"], usual) == chosen
    assert check({"gpu_memory_gib": ""}, ["vision"], usual).gpus == 1
    spec = WorkloadSpec(gpus=0.34, gpu_memory_bytes=8 * 1024**3, memory_bytes=2 * 1024**3)
    queued = Workload(name="w", project="vision", spec=spec)
    claimed = check({"claim": "w", "gpus": 0.34}, ["vision"], usual).queued_as(queued, usual, "")
    assert (claimed.gpus, claimed.gpu_memory_gib) == (0, 8.0)


def test_a_claim_is_not_stored_for_the_next_start() -> None:
    assert "claim" not in WorkspaceChoice("vision", 0, 1.0, 2.0, "w").options()


@pytest.mark.parametrize(
    ("options", "field", "expected"),
    [
        ({"project": "speech"}, "project", "vision"),
        ({"project": 3}, "project", "vision"),
        ({"project": ["vision"]}, "project", "vision"),
        ({"gpus": -1}, "gpus", "from 0 to 1024"),
        ({"gpus": 0.005}, "gpus", "share of one GPU"),
        ({"gpus": 1.5}, "gpus", "whole number"),
        ({"gpus": 0.5, "gpu_memory_gib": 4}, "gpus", "left out where memory of a GPU"),
        ({"gpu_memory_gib": -1}, "gpu_memory_gib", "a number from 0"),
        ({"gpus": True}, "gpus", "whole number"),
        ({"gpus": None}, "gpus", "whole number"),
        ({"gpus": "nan"}, "gpus", "whole number"),
        ({"gpus": "inf"}, "gpus", "whole number"),
        ({"cpu": "many"}, "cpu", "a number"),
        ({"cpu": 0}, "cpu", "from 0.1"),
        ({"memory_gib": 1e9}, "memory_gib", "to 65536"),
        ({"memory_bytes": "x"}, "memory_bytes", "a number"),
        ({"claim": 1}, "claim", "queued workspace"),
        ({"image": "x"}, "image", "left out"),
    ],
)
def test_bad_options_are_named(options: dict[str, Any], field: str, expected: str) -> None:
    with pytest.raises(BadOption) as caught:
        check(options, ["vision"], SIZES)
    assert caught.value.field == field
    assert expected in str(caught.value)
    assert repr(options[field]) in str(caught.value)


def test_nobody_without_a_project_gets_a_workspace() -> None:
    with pytest.raises(BadOption, match="you are not in any"):
        check({}, [], SIZES)


def test_projects_are_the_hubs_groups() -> None:
    groups = ["project-vision", "carrel-admins", "project-", "project-a-b", "staff"]
    assert projects_of(groups) == ["a-b", "vision"]


def test_what_is_allowed_is_the_end_of_a_range() -> None:
    offer = WorkspaceChoices(most=Most(gpus=2, cpu=4, memory_gib=8))
    assert check({"gpus": 2, "cpu": 4, "memory_gib": 8}, ["vision"], offer).gpus == 2
    for name, value in (("gpus", 3), ("cpu", 4.5), ("memory_gib", 9)):
        with pytest.raises(BadOption, match=f"{name} is {value}; it should be a"):
            check({name: value}, ["vision"], offer)


def test_one_of_the_kinds_that_are_offered() -> None:
    offer = WorkspaceChoices(
        profiles=[WorkspaceProfile("plain", "Plain"), WorkspaceProfile("big", "Big")]
    )
    assert check({}, ["vision"], offer).profile == "plain"
    chosen = check({"profile": "big"}, ["vision"], offer)
    assert chosen.options()["profile"] == "big"
    with pytest.raises(BadOption, match="one of plain, big"):
        check({"profile": "root"}, ["vision"], offer)
    with pytest.raises(BadOption, match="there is one kind only"):
        check({"profile": "big"}, ["vision"], WorkspaceChoices())


@pytest.mark.parametrize(
    ("profile", "at_least", "below"),
    [("1g.10gb", 8.0, 9.6), ("3g.40gb", 19.7, 39.0), ("1g.18gb", 8.0, 15.9)],
)
def test_an_instance_that_was_given_for_a_share_is_asked_for_again(
    profile: str, at_least: float, below: float
) -> None:
    """By memory: more than the next smaller instance has, and no more than it has itself."""
    spec = WorkloadSpec(gpus=0.0, mig_profile=profile, memory_bytes=2 * 1024**3)
    kept = WorkspaceChoice.of(Workload(name="w", project="vision", spec=spec), SIZES, "")
    assert kept.gpus == 0
    assert at_least < kept.gpu_memory_gib < below
