"""What clients read of each kind of work is what the scheduler writes, field by field."""

import msgspec
import pytest

from carrel_schema import sections as read
from carrel_schema import sections as written


def structs(module: object) -> dict[str, type[msgspec.Struct]]:
    return {
        name: found
        for name, found in vars(module).items()
        if isinstance(found, type) and issubclass(found, msgspec.Struct)
    }


def test_every_section_is_known_to_clients() -> None:
    assert structs(read).keys() == structs(written).keys()


@pytest.mark.parametrize("name", sorted(structs(written)))
def test_fields_and_defaults_are_the_same(name: str) -> None:
    def fields(struct: type[msgspec.Struct]) -> dict[str, object]:
        return {field.name: field.default for field in msgspec.structs.fields(struct)}

    assert fields(structs(read)[name]) == fields(structs(written)[name])
