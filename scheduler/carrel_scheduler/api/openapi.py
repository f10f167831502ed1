"""The OpenAPI 3.1 document, made from the table of operations and the types of their models."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
from pydantic.json_schema import models_json_schema

import carrel_scheduler
from carrel_scheduler.api import problems
from carrel_scheduler.api.models import validators
from carrel_scheduler.api.models.forms import DNS_LABEL
from carrel_scheduler.api.operation import BYTES, ROOT, Operation
from carrel_scheduler.api.principals.access import RULES
from carrel_schema.answers import Answer
from carrel_schema.problems import ProblemBody
from carrel_schema.wire import ALWAYS_SAID, WorkloadSpecOut

REFERENCE: Final = "#/components/schemas/"
_PATH_PARTS: Final[Mapping[str, Any]] = {
    "project": {"type": "string", "pattern": DNS_LABEL, "maxLength": 63},
    "name": {"type": "string", "pattern": DNS_LABEL, "maxLength": 63},
    "digest": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
    "node": {"type": "string", "minLength": 1, "maxLength": 255},
    "user": {"type": "string", "minLength": 1, "maxLength": 255},
    "index": {"type": "string", "pattern": "^[0-9]{1,3}$"},
    "checkpoint": {"type": "string", "minLength": 1, "maxLength": 255},
    "model": {"type": "string", "pattern": DNS_LABEL, "maxLength": 63},
    "version": {"type": "string", "pattern": "^[0-9]{1,9}$"},
    "token": {"type": "string", "pattern": "^[0-9a-f]{1,32}$"},
    "type": {"type": "string", "enum": ["environment", "compute", "data-source"]},
    "rule": {"type": "string", "pattern": "^[0-9a-f]{1,32}$"},
}
_WORDS: Final[Mapping[int, str]] = {
    101: "The websocket is open",
    200: "Done",
    201: "Created",
    202: "Accepted; what follows is seen in the status",
    204: "Done; nothing to say",
}
TAGS: Final[Mapping[str, str]] = {
    "caller": "Auth",
    "cluster": "Nodes",
    "code": "Files",
    "events": "Workloads",
    "insight": "Metrics",
    "results": "Files",
    "samples": "Metrics",
    "workers": "Experiments",
}
"""Tags of modules whose names do not say them."""
_PROBLEM_WORDS: Final[Mapping[int, str]] = {
    kind.status: kind.title for kind in problems.Problem.__subclasses__()
}


_SCHEMAS_OF_MEDIA: Final[Mapping[str, Mapping[str, str]]] = {
    "text/plain": {"type": "string"},
    "text/csv": {"type": "string"},
    "text/event-stream": {"type": "string"},
    BYTES: {"type": "string", "format": "binary"},
    "application/x-tar": {"type": "string", "format": "binary"},
    "application/vnd.apache.parquet": {"type": "string", "format": "binary"},
}


def document(operations: Sequence[Operation], prefix: str) -> bytes:
    """The document as JSON; ``prefix`` is where the Hub mounts the service."""
    schemas = _schemas(operations)
    paths: dict[str, Any] = {}
    for operation in operations:
        path = paths.setdefault(operation.path if not operation.rooted else "/metrics", {})
        path[operation.method.lower()] = _operation(operation)
        if operation.rooted:
            path["servers"] = [{"url": prefix}]
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {
                "title": "Carrel",
                "version": carrel_scheduler.__version__,
                "description": "Workspaces and preemptible training under guaranteed quotas.",
                "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
            },
            "servers": [{"url": prefix + ROOT}],
            "security": [{"hubToken": []}],
            "tags": [{"name": tag} for tag in sorted(set(map(tag_of, operations)))],
            "paths": paths,
            "components": {
                "schemas": schemas,
                "securitySchemes": {
                    "hubToken": {
                        "type": "http",
                        "scheme": "bearer",
                        "description": "Any JupyterHub token",
                    },
                    "taskToken": {
                        "type": "http",
                        "scheme": "bearer",
                        "description": "CARREL_TASK_TOKEN of a task, for its own reports",
                    },
                },
            },
        }
    )


def _operation(operation: Operation) -> dict[str, Any]:
    found: dict[str, Any] = {
        "tags": [tag_of(operation)],
        "operationId": operation.id,
        "summary": operation.summary,
        "x-carrel-access": operation.access.value,
        "x-carrel-project-in": operation.project_in,
        **_permissions(operation),
        "parameters": [*_path_parameters(operation), *_query(operation), *_headers(operation)],
        "responses": {
            **{str(status): _answer(operation, status) for status in operation.answers},
            **{str(status): _problem(status) for status in problem_statuses(operation)},
        },
    }
    if operation.also_scope:
        found["x-carrel-also-scope"] = operation.also_scope
    if operation.for_jobs:
        found["x-carrel-for-jobs"] = True
    if operation.websocket:
        found["x-carrel-websocket"] = True
    if RULES[operation.access].task_token or operation.for_jobs:
        found["security"] = [{"hubToken": []}, {"taskToken": []}]
    if operation.raw_bytes:
        schema = {"type": "string", "format": "binary", "maxLength": operation.raw_bytes}
        found["requestBody"] = {"required": True, "content": {BYTES: {"schema": schema}}}
    if operation.body is not None:
        media = ["application/json"]
        media += ["application/merge-patch+json"] if operation.method == "PATCH" else []
        schema = {"$ref": REFERENCE + _validator(operation.body, operation).__name__}
        found["requestBody"] = {
            "required": True,
            "content": {one: {"schema": schema} for one in media},
        }
    return found


def tag_of(operation: Operation) -> str:
    """The part of the API that it belongs to: named after the module that it is in."""
    if operation.run is None:
        return "Workloads"
    module = operation.run.__module__.rpartition(".")[2]
    return TAGS.get(module, module.replace("_", " ").capitalize())


def problem_statuses(operation: Operation) -> list[int]:
    """The status codes with which the operation may refuse."""
    found = {400, 401, 403, 422, 500, 503, *operation.problems}
    if "{" in operation.path:
        found.add(404)
    if operation.body is not None or operation.raw_bytes:
        found |= {413, 415}
    return sorted(found)


def _path_parameters(operation: Operation) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": _PATH_PARTS[name]}
        for name in re.findall(r"{(\w+)}", operation.path)
    ]


def _permissions(operation: Operation) -> dict[str, str]:
    """The permission that it needs, and the one for what is somebody else's."""
    if not operation.permission:
        return {}
    found = {"x-carrel-permission": operation.permission}
    if RULES[operation.access].owner:
        found["x-carrel-permission-for-others"] = operation.others
    return found


def _query(operation: Operation) -> list[dict[str, Any]]:
    schema = validators.validator_of(operation.query, validators.TextValidator).model_json_schema()
    return [
        {"name": name, "in": "query", "required": False, "schema": _without_null(one)}
        for name, one in schema.get("properties", {}).items()
    ]


def _without_null(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A parameter's schema: what may be left out cannot be said as null in a query."""
    found = {key: value for key, value in schema.items() if key not in ("title", "default")}
    some = [one for one in found.pop("anyOf", []) if one.get("type") != "null"]
    return {**found, **some[0]} if some else found


def _headers(operation: Operation) -> list[dict[str, Any]]:
    schema = {"type": "string", "maxLength": 200, "pattern": "^[!-~]*$"}
    return [
        {"name": name, "in": "header", "required": False, "schema": schema}
        for name in operation.headers
    ]


def _answer(operation: Operation, status: int) -> dict[str, Any]:
    found: dict[str, Any] = {"description": _WORDS[status]}
    kind = operation.answers[status]
    if kind is not None:
        found["content"] = {
            media: {"schema": _SCHEMAS_OF_MEDIA.get(media) or _reference(kind)}
            for media in (operation.media, *operation.other_media)
        }
    return found


def _reference(kind: Any) -> dict[str, Any]:
    if isinstance(kind, tuple):
        return {"anyOf": [_reference(one) for one in kind]}
    (schema,), _ = msgspec.json.schema_components([kind], ref_template=REFERENCE + "{name}")
    return schema


def _problem(status: int) -> dict[str, Any]:
    schema = {"$ref": REFERENCE + ProblemBody.__name__}
    return {
        "description": _PROBLEM_WORDS[status],
        "content": {problems.MEDIA_TYPE: {"schema": schema}},
    }


def _schemas(operations: Sequence[Operation]) -> dict[str, Any]:
    kinds: list[Any] = [ProblemBody]
    bodies: list[type[validators.Validator]] = []
    for operation in operations:
        for kind in operation.answers.values():
            plain = kind in (None, str, bytes)
            kinds += kind if isinstance(kind, tuple) else [] if plain else [kind]
        if operation.body is not None:
            bodies.append(_validator(operation.body, operation))
    _, answers = msgspec.json.schema_components(kinds, ref_template=REFERENCE + "{name}")
    for complete in _descendants(Answer):
        omits = complete.__struct_config__.omit_defaults
        if (schema := answers.get(complete.__name__)) and not omits:
            _complete(schema, schema["properties"])
    _complete(answers[WorkloadSpecOut.__name__], ALWAYS_SAID)
    _, requests = models_json_schema(
        [(body, "validation") for body in bodies], ref_template=REFERENCE + "{model}"
    )
    found = dict(requests["$defs"])
    both = found.keys() & answers.keys()
    if both:
        msg = f"a request and an answer have the same name: {sorted(both)}"
        raise ValueError(msg)
    return {**found, **answers}


def _validator(body: type[msgspec.Struct], operation: Operation) -> type[validators.Validator]:
    changes = operation.method == "PATCH"
    return validators.patch_of(body) if changes else validators.validator_of(body)


def _descendants(kind: type[Answer]) -> Iterator[type[Answer]]:
    for one in kind.__subclasses__():
        yield one
        yield from _descendants(one)


def _complete(schema: dict[str, Any], always: Iterable[str]) -> None:
    """Mark fields as present in every answer: their defaults are for clients."""
    schema["required"] = list(always)
    for name in schema["required"]:
        schema["properties"][name].pop("default", None)
