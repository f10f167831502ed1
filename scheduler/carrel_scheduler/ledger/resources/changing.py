"""Bodies of the requests that change an object, each for exactly the version that it was read in.

They are JSON patches: what is not named stays, also what others wrote there. Naming another version
than the stored one is a conflict.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from carrel_scheduler.ledger.resources import codec
from carrel_schema import names
from carrel_schema.objects import Object

Patch = list[dict[str, Any]]


def _of_version(version: int) -> dict[str, Any]:
    return {"op": "replace", "path": "/metadata/resourceVersion", "value": str(version)}


def _annotation(name: str, value: str) -> dict[str, Any]:
    return {"op": "add", "path": f"/metadata/annotations/{_escaped(name)}", "value": value}


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def specification(obj: Object) -> Patch:
    """Specification and labels."""
    kept = codec.kept_labels(obj).get(names.LABELS, "{}")
    return [
        _of_version(obj.meta.resource_version),
        {"op": "replace", "path": "/spec", "value": codec.specification(obj)},
        {"op": "replace", "path": "/metadata/labels", "value": codec.labels(obj)},
        _annotation(names.LABELS, kept),
    ]


def status(obj: Object) -> bytes:
    """The status, whole."""
    patch = [
        _of_version(obj.meta.resource_version),
        {"op": "add", "path": "/status", "value": codec.status(obj)},
    ]
    return msgspec.json.encode(patch)


def letting_go(version: int) -> Patch:
    """Ends an object for the ledger: without its mark it is none of ours, and nothing keeps it."""
    return [
        _of_version(version),
        {"op": "remove", "path": f"/metadata/labels/{_escaped(names.UID)}"},
        {"op": "add", "path": "/metadata/finalizers", "value": []},
        _annotation(names.GONE, "true"),
    ]


def taking_on(obj: Object, annotations: Mapping[str, str]) -> Patch:
    """Marks what somebody else made as one of ours, with what he left to us filled in.

    ``annotations`` are those that it has.
    """
    return [
        _of_version(obj.meta.resource_version),
        {"op": "replace", "path": "/spec", "value": codec.specification(obj)},
        {"op": "add", "path": "/metadata/labels", "value": codec.labels(obj)},
        {"op": "add", "path": "/metadata/finalizers", "value": codec.finalizers(obj)},
        {
            "op": "add",
            "path": "/metadata/annotations",
            "value": {**annotations, **codec.annotations(obj)},
        },
    ]
