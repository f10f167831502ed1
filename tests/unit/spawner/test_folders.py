"""A workspace's Python environment and folders: what may be said, and what becomes of it."""

from typing import Any

import pytest

from carrel.models import Volume, Workload, WorkloadSpec
from carrel_spawner.choices.option_checks import check, parse_environment, parse_folders
from carrel_spawner.options import (
    ENVIRONMENT,
    FOLDERS,
    BadOption,
    Folder,
    WorkspaceChoice,
    WorkspaceChoices,
    WorkspaceProfile,
    launch_variables,
)

SETS = Folder("/data/sets", "sets", read_only=True)
OFFER = WorkspaceChoices(
    profiles=[
        WorkspaceProfile("own", "Own"),
        WorkspaceProfile("torch", "Torch", "", "/opt/torch", [SETS]),
    ]
)


def test_folders_are_spelt_as_for_jobs_or_written_as_objects() -> None:
    said = ["/data/sets:ro", "/data/a:deep/b", {"source": "/data/c", "read_only": True}]
    expected = (SETS, Folder("/data/a", "deep/b"), Folder("/data/c", "c", read_only=True))
    assert parse_folders(said) == expected
    assert parse_folders("/data/sets::ro\n\n/data/a:deep/b\r\n/data/c:c:ro") == expected
    assert parse_folders([one.as_dict() for one in expected]) == expected
    assert parse_folders([str(one) for one in expected]) == expected


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("data:x", "an absolute path"),
        ("/data/../x:x", "an absolute path"),
        ("/data:/x", "a name below the home"),
        ("/data:a/../../x", "a name below the home"),
        ("/", "an absolute path"),
        ("/data:x:rx", "SOURCE"),
        ("/a:x\n/b:x", "the only one at x"),
        ("/a:x:ro\n/a:y", "as /a before it"),
        (["/a", 3], "SOURCE"),
        ([{"source": "/a", "mode": "ro"}], "read_only"),
        ([{"source": "/a", "read_only": "yes"}], "true or false"),
        ([{"source": "/a:b"}], "without colons"),
        ({"source": "/a"}, "a list"),
    ],
)
def test_a_folder_that_cannot_be_is_named(said: Any, expected: str) -> None:
    with pytest.raises(BadOption, match=expected) as caught:
        parse_folders(said)
    assert caught.value.field.startswith("volumes")


@pytest.mark.parametrize("said", ["venv", "./venv", "/opt/a\n", "/opt:x", 3, "~"])
def test_an_environment_is_a_folder(said: Any) -> None:
    with pytest.raises(BadOption, match=r"environment is .* a Python environment"):
        parse_environment(said)
    assert parse_environment("~/venv/") == "~/venv"


def test_a_definition_is_stored_whole_and_is_good_for_the_next_start() -> None:
    said = {"profile": "torch", "environment": "~/venv", "volumes": ["/data/a:b:ro"]}
    chosen = check(said, ["vision"], OFFER)
    stored = chosen.options()
    assert (stored["environment"], stored["profile"]) == ("~/venv", "torch")
    assert stored["volumes"] == [{"source": "/data/a", "destination": "b", "read_only": True}]
    assert check(stored, ["vision"], OFFER) == chosen
    assert "environment" not in check({}, ["vision"], OFFER).options()


def test_ones_own_counts_more_than_what_the_kind_brings() -> None:
    plain = check({"profile": "torch"}, ["vision"], OFFER)
    assert plain.with_profile(OFFER).environment == "/opt/torch"
    assert plain.with_profile(OFFER).volumes == (SETS,)
    own = {"profile": "torch", "environment": "/e", "volumes": ["/mine:sets", "/x"]}
    with_profile = check(own, ["vision"], OFFER).with_profile(OFFER)
    assert with_profile.environment == "/e"
    assert with_profile.volumes == (Folder("/mine", "sets"), Folder("/x", "x"))
    told = launch_variables(with_profile.environment, with_profile.volumes)
    assert told == {ENVIRONMENT: "/e", FOLDERS: '[["/mine", "sets"], ["/x", "x"]]'}


def test_the_turn_in_the_queue_brings_back_what_was_queued() -> None:
    """The call on its turn tells the size only; the workload keeps the rest."""
    for said in ({"profile": "torch"}, {"profile": "own", "environment": "/e", "volumes": ["/x"]}):
        chosen = check(said, ["vision"], OFFER)
        whole = chosen.with_profile(OFFER)
        spec = WorkloadSpec(
            environment=launch_variables(whole.environment, whole.volumes),
            volumes=[Volume(**one.as_dict()) for one in whole.volumes],
        )
        queued = Workload(name="w", project="vision", spec=spec)
        called = WorkspaceChoice("vision", chosen.gpus, chosen.cpu, chosen.memory_gib)
        assert called.queued_as(queued, OFFER, chosen.profile) == chosen


def test_where_the_admin_sets_them_folders_are_refused() -> None:
    with pytest.raises(BadOption, match="left out: the admin sets them"):
        check({"volumes": ["/data"]}, ["vision"], WorkspaceChoices(folders=False))
