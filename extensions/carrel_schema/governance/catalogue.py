"""The catalogue of models that can be served: templates of endpoints that name a model.

An entry is data: a template with ``model``. Administrators and members of projects write their own;
some come along.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec

from carrel_schema.answers import Answer
from carrel_schema.constraints import Constraint, ShortText


class CatalogueModel(msgspec.Struct, frozen=True, kw_only=True):
    """The model of a template that is an entry of the catalogue.

    Attributes:
        source: the repository of the model, as ``mistralai/Mixtral-8x7B-Instruct-v0.1``.
        license: of the model; empty: not said.
        gpu_memory_gib: that each of its GPUs has to have.
    """

    source: Annotated[ShortText, Constraint(min_length=1)]
    license: ShortText = ""
    gpu_memory_gib: Annotated[float, Constraint(ge=0, le=10_000)] = 0.0


class CatalogueEntry(Answer, frozen=True, kw_only=True):
    """A model that can be served: ``template: NAME`` in a request of kind ``inference`` does.

    Attributes:
        scope: where the template is from, as ``project/vision``; empty: it comes along.
        gpus: of each replica.
        runs_here: whether nodes of this installation can hold a replica; ``why_not`` if not.
    """

    name: str
    scope: str = ""
    description: str = ""
    source: str = ""
    license: str = ""
    gpus: float = 0.0
    gpu_memory_gib: float = 0.0
    image: str = ""
    fields: Mapping[str, Any] = {}
    runs_here: bool = True
    why_not: str = ""


class CatalogueList(Answer, frozen=True, kw_only=True):
    """Entries by name."""

    items: Sequence[CatalogueEntry] = ()
