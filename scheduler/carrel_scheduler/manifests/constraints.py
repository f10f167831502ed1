"""What the REST API's models ask of values, found by the ledger's names of fields.

The models of requests say bounds, patterns and sizes; the ledger's structures say the shape. A
``Bounds`` walks through the models' JSON schema beside the shape.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel

_TAKEN: Final = (
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "pattern",
)
_MOST_WHOLE: Final = 2.0**63


@dataclass(frozen=True, slots=True)
class Bounds:
    """A place in a model's JSON schema; an empty one where the models say nothing."""

    schema: Mapping[str, Any]
    definitions: Mapping[str, Any]

    @classmethod
    def of(cls, model: type[BaseModel]) -> "Bounds":
        """The whole model."""
        schema = model.model_json_schema()
        return cls(schema, schema.get("$defs", {}))

    def field(self, name: str) -> "Bounds":
        """Of a field by its name."""
        return self._at(self._resolved().get("properties", {}).get(name, {}))

    def items(self) -> "Bounds":
        """Of the members of a list."""
        return self._at(self._resolved().get("items", {}))

    def values(self) -> "Bounds":
        """Of the values of a mapping."""
        schema = self._resolved()
        named = [*schema.get("patternProperties", {}).values(), {}]
        more = schema.get("additionalProperties", named[0])
        return self._at(more if isinstance(more, Mapping) else named[0])

    def all(self) -> dict[str, Any]:
        """Bounds, sizes and patterns of this place itself."""
        schema = self._resolved()
        found = {key: schema[key] for key in _TAKEN if key in schema and not _beyond(schema[key])}
        for end in ("minimum", "maximum"):
            excluded = f"exclusive{end.capitalize()}"
            if excluded in schema:  # a number in the newer of the two drafts, a flag in the older
                found |= {end: schema[excluded], excluded: True}
        return found

    def _at(self, schema: Mapping[str, Any]) -> "Bounds":
        return Bounds(schema, self.definitions)

    def _resolved(self) -> Mapping[str, Any]:
        """Without references, and without "or null"."""
        schema = self.schema
        while True:
            if "$ref" in schema:
                schema = self.definitions[schema["$ref"].rpartition("/")[2]]
                continue
            rest = [one for one in schema.get("anyOf", ()) if one.get("type") != "null"]
            if len(rest) == 1 and "anyOf" in schema:
                schema = rest[0]
                continue
            return schema


def _beyond(bound: Any) -> bool:
    """Whether a bound is beyond what the API server can compare whole numbers with."""
    return isinstance(bound, int | float) and abs(bound) >= _MOST_WHOLE
