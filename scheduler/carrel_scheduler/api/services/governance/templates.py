"""Templates: written by users and administrators, filled into requests before they are validated.

What a request says wins over the template it names, that one over default templates, of which the
narrowest scope wins. Sections and mappings are filled entry by entry, everything else as a whole.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from pydantic import ValidationError

from carrel_scheduler.api import problems, refusals
from carrel_scheduler.api.dependencies import ApiDependencies
from carrel_scheduler.api.models import validators
from carrel_scheduler.api.principals.identity import Principal
from carrel_scheduler.api.problems import Code, FieldError
from carrel_scheduler.ledger.scoped_records import ScopedRecord
from carrel_scheduler.ledger.store import AlreadyExists, Conflict, NotFound
from carrel_schema.governance.templates import NOT_IN_TEMPLATES, TemplateFields, TemplateOut
from carrel_schema.objects import Project
from carrel_schema.scopes import Scope, scopes_over
from carrel_schema.wire import WorkloadCreate

KIND: Final = "template"
KNOWN_SECONDS: Final = 2.0
NAMED: Final = b'"template"'
INSTEAD: Final = frozenset({"gpus", "gpu_memory_bytes", "mig_profile"})
"""Ways to ask for GPUs: a request that says one takes none of the others from a template."""


class Templates:
    """Reads, writes and fills in templates."""

    def __init__(self, deps: ApiDependencies) -> None:
        self._deps = deps
        self._known: Sequence[ScopedRecord] = ()
        self._departments: dict[str, str] = {}
        self._known_until = 0.0

    async def visible(self, principal: Principal, scope: Scope | None) -> Sequence[TemplateOut]:
        """Those that the caller may use; administrators see all."""
        await self._refresh()
        departments = {
            department
            for project, department in self._departments.items()
            if principal.sees(project)
        }

        def seen(one: Scope) -> bool:
            return (
                principal.sees_all
                or one.level == "platform"
                or (one.level == "department" and one.name in departments)
                or principal.may("templates:read", one)
            )

        return [_out(one) for one in self._known if seen(one.scope) and scope in (None, one.scope)]

    async def get(self, name: str, scope: Scope, principal: Principal) -> TemplateOut:
        """One; raises ``Missing``."""
        for one in await self.visible(principal, scope):
            if one.name == name:
                return one
        raise _missing(name, scope)

    async def put(
        self, name: str, scope: Scope, fields: TemplateFields, principal: Principal
    ) -> TemplateOut:
        """Make one, or replace it.

        Raises ``Forbidden`` where it is not the caller's to write, ``Invalid`` for fields that no
        request has.
        """
        await self._check_author(name, scope, principal, default=fields.default)
        _check_fields(fields)
        content = msgspec.structs.replace(fields, expected_version=None)
        record = ScopedRecord(
            kind=KIND, scope=scope, name=name, content=msgspec.Raw(msgspec.json.encode(content))
        )
        try:
            made = await self._deps.ledger.scoped.put(
                record, actor=principal.name, expected_version=fields.expected_version
            )
        except (AlreadyExists, Conflict, NotFound) as error:
            raise problems.Conflicting(Code.CONFLICT, str(error)) from error
        self._known_until = 0.0
        return _out(made)

    async def delete(self, name: str, scope: Scope, principal: Principal) -> None:
        """Remove one; raises ``Missing``, ``Forbidden``."""
        await self.get(name, scope, principal)
        await self._check_author(name, scope, principal, default=False)
        await self._deps.ledger.scoped.remove(KIND, scope, name)
        self._known_until = 0.0

    async def expand(self, content: bytes, principal: Principal) -> bytes:
        """A request's body (or a batch's) with what its templates say where it says nothing.

        A body that is no JSON object is returned as it is: validation tells what is wrong.
        """
        await self._refresh()
        if NAMED not in content and not any(_read(one).default for one in self._known):
            return content
        try:
            body = msgspec.json.decode(content)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return content
        if not isinstance(body, dict):
            return content
        items = body.get("items")
        if isinstance(items, list):
            body["items"] = [
                self._filled(one, principal) if isinstance(one, dict) else one for one in items
            ]
            return msgspec.json.encode(body)
        return msgspec.json.encode(self._filled(body, principal))

    def _filled(self, body: dict[str, Any], principal: Principal) -> dict[str, Any]:
        project, user = body.get("project"), principal.name
        if principal.spawner and isinstance(body.get("user"), str):
            user = body["user"]
        if not isinstance(project, str) or not principal.sees(project):
            return body  # refused soon, for that
        scopes = scopes_over(
            project=project, department=self._departments.get(project, ""), user=user
        )
        there = [one for one in self._known if one.scope in scopes]
        name, named = body.get("template"), None
        if isinstance(name, str):
            found = [one for one in there if one.name == name]
            if not found:
                known = ", ".join(f"`{one}`" for one in sorted({one.name for one in there}))
                right = f"one of {known}" if known else "none: there is no template for you here"
                raise problems.invalid_field("template", Code.UNKNOWN_TEMPLATE, name, right)
            named = _read(found[-1])
        kind = str(body.get("kind") or _kind_of(named))
        if named is not None and named.kinds and kind not in named.kinds:
            right = f"one for `{kind}`; `{name}` is for {', '.join(named.kinds)}"
            raise problems.invalid_field("template", Code.UNKNOWN_TEMPLATE, name, right)
        filling: dict[str, Any] = {"kind": kind}
        for one in map(_read, there):
            if one.default and (not one.kinds or kind in one.kinds):
                filling = _merged(filling, one.fields)
        if named is not None:
            filling = _merged(filling, named.fields)
        return _merged(filling, body)

    async def _check_author(
        self, name: str, scope: Scope, principal: Principal, *, default: bool
    ) -> None:
        if principal.may("templates:manage", scope):
            return
        if default or scope.level in ("platform", "department"):
            raise problems.not_permitted("templates:manage", str(scope))
        if not principal.may("templates:read", scope):
            raise _missing(name, scope)
        if not principal.may("templates:create", scope):
            raise problems.not_permitted("templates:create", str(scope))
        for one in self._known:
            if (one.scope, one.name) == (scope, name) and one.created_by != principal.name:
                raise problems.Forbidden(
                    Code.NOT_THE_OWNER,
                    f"`{name}` was made by {one.created_by}; choose another name",
                )

    async def _refresh(self) -> None:
        if self._deps.clock() < self._known_until:
            return
        self._known = await self._deps.ledger.scoped.list(KIND)
        projects = (await self._deps.ledger.list(Project)).items if self._known else ()
        self._departments = {one.meta.name: one.spec.department for one in projects}
        self._known_until = self._deps.clock() + KNOWN_SECONDS


def _kind_of(named: TemplateFields | None) -> str:
    if named is None:
        return "training"
    usual = named.kinds[0] if len(named.kinds) == 1 else "training"
    return str(named.fields.get("kind") or usual)


def _merged(filling: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    kept = {
        name: value
        for name, value in filling.items()
        if not (name in INSTEAD and INSTEAD & over.keys() and name not in over)
    }
    return kept | {
        name: {**kept[name], **value}
        if isinstance(value, dict) and isinstance(kept.get(name), dict)
        else value
        for name, value in over.items()
    }


def _check_fields(fields: TemplateFields) -> None:
    errors = [
        FieldError(
            field=f"fields.{name}",
            code=Code.UNKNOWN_FIELD,
            value=None,
            expected="left out: it is said for each work anew",
        )
        for name in sorted(NOT_IN_TEMPLATES & fields.fields.keys())
    ]
    asked = {name: one for name, one in fields.fields.items() if name not in NOT_IN_TEMPLATES}
    try:
        validators.patch_of(WorkloadCreate).model_validate_json(msgspec.json.encode(asked))
    except ValidationError as error:
        told = refusals.from_validation(error, asked).errors
        errors += [msgspec.structs.replace(one, field=f"fields.{one.field}") for one in told]
    if errors:
        said = "; ".join(f"{one.field}: expected {one.expected}" for one in errors[:3])
        raise problems.Invalid(errors[0].code, said, errors=errors)


def _read(record: ScopedRecord) -> TemplateFields:
    return msgspec.json.decode(record.content, type=TemplateFields)


def _out(record: ScopedRecord) -> TemplateOut:
    fields = _read(record)
    return TemplateOut(
        name=record.name,
        scope=str(record.scope),
        version=record.version,
        description=fields.description,
        kinds=fields.kinds,
        default=fields.default,
        fields=fields.fields,
        changed_at=record.changed_at,
        changed_by=record.changed_by,
    )


def _missing(name: str, scope: Scope) -> problems.Missing:
    return problems.Missing(
        Code.NOT_FOUND, f"There is no template `{name}` of {scope} that you can see"
    )
