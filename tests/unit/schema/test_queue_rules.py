"""Rules of projects and departments are defined once, for what is stored and for REST."""

import inspect

import msgspec
import pytest

from carrel_schema.answers import DepartmentFields, ProjectFields
from carrel_schema.objects import DepartmentSpec, ProjectRules, ProjectSpec, QueueRules

AMOUNTS = {"quota", "limit"}


@pytest.mark.parametrize("kind", [DepartmentSpec, DepartmentFields, ProjectSpec, ProjectFields])
def test_only_amounts_are_defined_by_each(kind: type[QueueRules]) -> None:
    """They count in thousandths of a GPU where they are stored, in GPUs in REST."""
    own = {*inspect.get_annotations(kind)}
    assert own & {*ProjectRules.__struct_fields__} == AMOUNTS


@pytest.mark.parametrize(
    ("stored", "shown"), [(DepartmentSpec, DepartmentFields), (ProjectSpec, ProjectFields)]
)
def test_what_is_shown_has_the_defaults_of_what_is_stored(
    stored: type[DepartmentSpec | ProjectSpec], shown: type[DepartmentFields | ProjectFields]
) -> None:
    rules = ProjectRules if stored is ProjectSpec else QueueRules
    same = [name for name in rules.__struct_fields__ if name not in AMOUNTS]
    assert stored.__struct_fields__[: len(same) + 2] == shown.__struct_fields__[: len(same) + 2]
    one, other = stored(), shown()
    assert [getattr(one, name) for name in same] == [getattr(other, name) for name in same]


def test_a_stored_specification_is_replaced_not_changed() -> None:
    spec = ProjectSpec()
    changed = msgspec.structs.replace(spec, rank=2)
    assert (spec.rank, changed.rank) == (0, 2)
    with pytest.raises(AttributeError):
        spec.rank = 1  # type: ignore[misc]
