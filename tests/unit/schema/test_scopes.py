"""Scopes as text, and which contain a piece of work."""

import pytest

from carrel_schema.scopes import PLATFORM, Scope, scopes_over


@pytest.mark.parametrize("text", ["platform", "department/lab", "project/vision-2", "user/ada.b"])
def test_a_scope_is_read_as_it_is_written(text: str) -> None:
    assert str(Scope.parse(text)) == text


@pytest.mark.parametrize(
    "text",
    ["", "platform/", "platform/x", "project", "project/", "team/x", "project/../x", "user/a b"],
)
def test_what_is_no_scope_is_refused_with_what_would_be_right(text: str) -> None:
    with pytest.raises(ValueError, match="it should be `platform`, `department/NAME`"):
        Scope.parse(text)


def test_scopes_over_work_go_from_the_widest_to_the_narrowest() -> None:
    found = scopes_over(project="vision", department="lab", user="ada")
    assert [str(one) for one in found] == [
        "platform",
        "department/lab",
        "project/vision",
        "user/ada",
    ]
    assert scopes_over() == (PLATFORM,)
