"""Named secrets: values that work gets by name, in a scope; no answer ever holds a value.

A variable of work whose text is ``SECRET:NAME,KEY`` is given the value of that key when a task
starts. Of several secrets of the name that of the narrowest scope counts: the user's own, then the
project's, the department's, the platform's.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Final, Literal, NamedTuple

import msgspec

from carrel_schema.answers import Answer
from carrel_schema.constraints import Constraint, Text

SecretType = Literal["generic", "registry", "access-key", "password", "ssh-key"]
KEYS_OF: Final[Mapping[SecretType, tuple[str, ...]]] = {
    "generic": (),
    "registry": ("server", "username", "password"),
    "access-key": ("access_key_id", "secret_access_key"),
    "password": ("username", "password"),
    "ssh-key": ("private_key",),
}
"""The keys that a secret of a type has to have; a generic one has any."""
SecretKey = Annotated[str, Constraint(min_length=1, max_length=253, pattern=r"^[-._A-Za-z0-9]+$")]
_REFERENCE: Final = re.compile(r"SECRET:([^,]*),(.*)", re.DOTALL)
REFERENCE_WORDS: Final = "`SECRET:NAME,KEY`"


class SecretFields(msgspec.Struct, frozen=True, kw_only=True):
    """A secret as it is written.

    Attributes:
        type: what it is for; it decides which keys there have to be.
        description: for people; never a value.
        data: values by key; they are encrypted before they are stored and never answered.
        keep_others: keys that are not named keep their values.
        expected_version: refused unless this is the stored version; 0: it has to be new.
    """

    type: SecretType = "generic"
    description: Annotated[Text, Constraint(max_length=1000)] = ""
    data: Annotated[dict[SecretKey, Text], Constraint(min_length=1, max_length=100)]
    keep_others: bool = False
    expected_version: int | None = None


class SecretOut(Answer, frozen=True, kw_only=True):
    """A secret without its values; ``scope`` in the form ``project/NAME``."""

    name: str
    scope: str
    type: SecretType = "generic"
    description: str = ""
    keys: Sequence[str] = ()
    version: int = 0
    changed_at: float = 0.0
    changed_by: str = ""


class SecretList(Answer, frozen=True, kw_only=True):
    """Secrets from the widest scope to the narrowest."""

    items: Sequence[SecretOut] = ()


class SecretReference(NamedTuple):
    """The secret and the key of it whose value a variable gets."""

    variable: str
    secret: str
    key: str


def references(environment: Mapping[str, str]) -> list[SecretReference]:
    """Find the variables that refer to secrets."""
    found = ((name, _REFERENCE.fullmatch(text)) for name, text in environment.items())
    return [SecretReference(name, one[1], one[2]) for name, one in found if one is not None]


def without_references(environment: Mapping[str, str]) -> dict[str, str]:
    """Find the variables that do not refer to secrets."""
    return {name: text for name, text in environment.items() if not _REFERENCE.fullmatch(text)}


def missing_keys(kind: SecretType, keys: Iterable[str]) -> list[str]:
    """List the keys that a secret of this type lacks."""
    there = frozenset(keys)
    return [key for key in KEYS_OF[kind] if key not in there]
