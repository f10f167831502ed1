"""The table of options and the API's schema say the same: no field without its option, no drift."""

import json
from collections.abc import Iterator
from typing import Any, Final

import pytest

from carrel import options
from carrel.options import Option, Surface
from carrel_scheduler.api import openapi
from carrel_scheduler.api.table import OPERATIONS
from carrel_schema.kinds import KINDS, PARTS, SECTIONS

DOCUMENT: Final = json.loads(openapi.document(OPERATIONS, "/services/carrel"))
SCHEMAS: Final = DOCUMENT["components"]["schemas"]
EXCEPTIONS: Final = {
    "kind": "follows from the options that are given; a form has it as its first question",
    "command": "stands behind `--`, is the cell, or the form's text area",
    "files": "the cell, or the notebook that is sent along",
    "user": "the spawner's",
    "server_name": "the spawner's",
    "port": "the spawner's",
    "hold_for_claim": "the spawner's",
    "external": "the spawner's",
    "experiment.map": "what `carrel.map` submits",
}


WHOLE: Final = {path for row in options.TABLE for path in row.fields}
"""What an option fills; an object that one option fills as a whole has none for its fields."""


def plain(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema without reference, and without null."""
    if "$ref" in schema:
        target = SCHEMAS[schema["$ref"].rpartition("/")[2]]
        return {**target, **{key: one for key, one in schema.items() if key != "$ref"}}
    some = [one for one in schema.get("anyOf", []) if one.get("type") != "null"]
    if len(some) == 1:
        rest = {key: one for key, one in schema.items() if key != "anyOf"}
        return {**rest, **plain(some[0])}
    return schema


def leaves(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every field that is not made of fields, by path."""
    for name, one in schema["properties"].items():
        found, here = plain(one), f"{path}{name}"
        items = plain(found.get("items", {}))
        if "properties" in found and here not in WHOLE:
            yield from leaves(found, f"{here}.")
        elif "properties" in items and name == "routes":
            yield from leaves(items, f"{here}[].")
        else:
            yield here, found
            parts = found.get("properties", {})
            yield from (
                (f"{here}.{part}", plain(parts[part]))
                for part in parts
                if f"{here}.{part}" in WHOLE
            )


FIELDS: Final = dict(leaves(SCHEMAS["WorkloadCreate"]))
FILLED: Final = [(row, path) for row in options.TABLE for path in row.fields]


def spelt(pair: tuple[Option, str]) -> str:
    return f"{pair[0].flag}:{pair[1]}"


@pytest.mark.parametrize("path", [path for path in FIELDS if path not in EXCEPTIONS])
def test_every_field_has_an_option_in_the_shell_and_in_notebooks_or_forms(path: str) -> None:
    surfaces = Surface(0)
    for row in options.TABLE:
        if path in row.fields:
            surfaces |= row.surfaces
    if path != "inputs":  # variables of a notebook: a shell has none
        assert Surface.CLI in surfaces
    assert surfaces & (Surface.MAGIC | Surface.FORM)


def test_exceptions_are_fields_without_options() -> None:
    assert EXCEPTIONS.keys() <= FIELDS.keys()
    assert not {path for _, path in FILLED} & EXCEPTIONS.keys()


@pytest.mark.parametrize(("row", "path"), FILLED, ids=map(spelt, FILLED))
def test_an_option_means_what_the_field_means(row: Option, path: str) -> None:
    assert path in FIELDS, "the API has no such field"
    schema = FIELDS[path]
    if row.value is None:
        assert schema["type"] == ("integer" if row.sets is not True else "boolean")
    elif path not in ("volumes", "routes[].name", "priority"):
        assert schema["type"] == row.value.json
    if path == "routes[].name":  # stands before the port
        return
    if row.value is not None and path != "priority":
        assert row.value.most == schema.get("maximum")
        if len(row.fields) == 1:
            assert row.value.least == schema.get("minimum")
        assert row.value.choices == tuple(schema.get("enum", ()))
    default = schema.get("default")
    assert (row.default == default) if default is not None else (row.default in (None, ""))


@pytest.mark.parametrize(("row", "path"), FILLED, ids=map(spelt, FILLED))
def test_an_option_is_for_the_kinds_that_have_its_section(row: Option, path: str) -> None:
    section = path.partition(".")[0]
    if section in SECTIONS:
        assert row.kinds <= {kind for kind, facts in KINDS.items() if section in facts.sections}


def test_the_kinds_are_those_of_the_api() -> None:
    asked = SCHEMAS["WorkloadCreate"]["properties"]["kind"]["enum"]
    assert {kind.name for kind in options.KINDS} == set(asked) == KINDS.keys() - PARTS
    assert options.EVERY.keys() == KINDS.keys()


def test_what_was_read_is_accepted() -> None:
    from carrel_scheduler.api.models.validators import read
    from carrel_schema.wire import WorkloadCreate

    for kind in options.KINDS:
        typed: dict[str, dict[str, Any]] = {
            "distributed": {"workers": "2"},
            "tensorboard": {"tensorboard": "a"},
        }
        typed |= {"experiment": {"experiment": True}, "inference": {"replicas": "2"}}
        typed |= {
            "notebook": {"notebook": "a.ipynb"},
            "schedule": {"schedule": "0 3 * * *", "notebook": "a.ipynb"},
        }
        typed |= {"workspace": {"interactive": True}}
        asked = options.read(typed.get(kind.name, {}), Surface.CLI)
        assert asked.kind == kind.name
        body: dict[str, Any] = {"project": "vision", "name": "x", "kind": kind.name}
        if kind.command:
            body["command"] = ["true"]
        read(WorkloadCreate, json.dumps({**body, **asked.fields}).encode())


def test_a_value_that_is_spelt_reads_back() -> None:
    for row in options.TABLE:
        if row.value is not None and row.default not in (None, "") and not row.many:
            assert row.value.read(row.value.spell(row.default)) == row.default
