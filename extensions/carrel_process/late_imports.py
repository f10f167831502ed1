"""Imports that a process does when it first needs them, and not while somebody waits for its start.

jsonschema, which Jupyter's servers, the Hub and nbformat import, checks the formats ``iri`` and
``iri-reference`` with ``rfc3987_syntax``. That module makes a parser of its grammar when it is
imported: this takes about as long as all other imports of a Jupyter server together, and none of
Jupyter's schemas has these formats. A stand-in imports it at the first check, which is the same.
"""

import importlib
import sys
from importlib.util import find_spec
from types import ModuleType
from typing import Any, Final

from typing_extensions import override

IRI_CHECKS: Final = "rfc3987_syntax"


class _StandIn(ModuleType):
    """Looks like the module that it imports as soon as something of it is used."""

    @staticmethod
    def is_valid_syntax(term: str, value: str) -> Any:
        """The function that jsonschema takes out of the module when it is imported itself."""
        return _imported().is_valid_syntax(term, value)

    @override
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(_imported(), name)


def put_off_iri_checks() -> None:
    """Have ``rfc3987_syntax`` imported at its first use; called before jsonschema is imported.

    Nothing happens where it is imported already, or not installed.
    """
    if IRI_CHECKS in sys.modules:
        return
    spec = find_spec(IRI_CHECKS)
    if spec is None:
        return
    stand_in = _StandIn(IRI_CHECKS)
    vars(stand_in).update(__spec__=spec, __path__=list(spec.submodule_search_locations or ()))
    sys.modules[IRI_CHECKS] = stand_in


def _imported() -> ModuleType:
    """The module itself, in the place of its stand-in."""
    if isinstance(sys.modules.get(IRI_CHECKS), _StandIn):
        del sys.modules[IRI_CHECKS]
    return importlib.import_module(IRI_CHECKS)
