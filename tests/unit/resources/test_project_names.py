"""One check of projects' names for REST, custom resources and both engines."""

import re

import pytest

from carrel_schema import names
from carrel_schema.names import namespace_of

WRONG = ["", "A", "a_b", "-a", "a-", "a" * 57, "a\n", "ä", "a.b", "a/b"]
RESERVED = ["system", "default", "carrel", "kube", "kube-system", "openshift-x"]


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_name_is_told_what_one_is(name: str) -> None:
    assert names.expected_project_name(name) == names.PROJECT_WORDS


@pytest.mark.parametrize("name", RESERVED)
def test_reserved_names_are_named(name: str) -> None:
    assert names.expected_project_name(name) == names.RESERVED_PROJECT_WORDS


@pytest.mark.parametrize("name", ["a", "vision", "systems", "kubernetes", "0-1", "a" * 56])
def test_all_others_have_a_namespace(name: str) -> None:
    assert names.expected_project_name(name) == ""
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", namespace_of(name))
