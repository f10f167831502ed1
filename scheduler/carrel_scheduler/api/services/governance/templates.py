"""Templates: written by users and administrators, filled into requests before they are validated.

What a request says wins over the template it names, that one over default templates, of which the
narrowest scope wins, and that one over the assets that policies name. Sections and mappings are
filled entry by entry, everything else as a whole.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from carrel_scheduler.api import problems
from carrel_scheduler.api.dependencies import ApiDependencies
from carrel_scheduler.api.principals.identity import Principal
from carrel_scheduler.api.problems import Code
from carrel_scheduler.api.services.governance.assets import AssetService
from carrel_scheduler.api.services.governance.documents import Documents, check_fields
from carrel_scheduler.ledger.scoped_records import ScopedRecord
from carrel_scheduler.policy.assets import (
    INSTEAD,
    AssetRefused,
    UsableAssets,
    named_by_policies,
)
from carrel_scheduler.policy.catalogue import KIND as CATALOGUE_KIND
from carrel_scheduler.policy.catalogue import included
from carrel_scheduler.policy.policy_records import PolicyRecords
from carrel_schema import constraints
from carrel_schema.governance.templates import NOT_IN_TEMPLATES, TemplateFields, TemplateOut
from carrel_schema.scopes import Scope, scopes_over
from carrel_schema.sections import ScheduleSpec

KIND: Final = "template"
NAMED: Final = (b'"template"', b'"assets"')


class Templates:
    """Reads, writes and fills in templates, and assets that they, requests and policies name."""

    def __init__(
        self, deps: ApiDependencies, assets: AssetService, policies: PolicyRecords
    ) -> None:
        self._documents, self._assets = Documents(deps, [KIND], "templates", "template"), assets
        self._policies = policies

    async def visible(self, principal: Principal, scope: Scope | None) -> Sequence[TemplateOut]:
        """Templates that the caller may use; all for administrators."""
        return [_out(one) for one in await self._documents.visible(principal, scope)]

    async def get(self, name: str, scope: Scope, principal: Principal) -> TemplateOut:
        """Read a template; raises ``Missing``."""
        return _out(await self._documents.get(KIND, name, scope, principal))

    async def put(
        self, name: str, scope: Scope, fields: TemplateFields, principal: Principal
    ) -> TemplateOut:
        """Create a template, or replace it.

        Raises ``PermissionDenied`` where it is not the caller's to write, ``InvalidRequest`` for
        fields that no request has, and for a model that no endpoint serves.
        """
        if fields.model is not None and list(fields.kinds) != [CATALOGUE_KIND]:
            right = f"[{CATALOGUE_KIND}] of a template with `model`"
            raise problems.invalid_field("kinds", Code.WRONG_FORM, list(fields.kinds), right)
        check_fields(
            fields.fields,
            NOT_IN_TEMPLATES & fields.fields.keys(),
            "left out: it is said for each work anew",
        )
        content = msgspec.structs.replace(fields, expected_version=None)
        made = await self._documents.put(
            (KIND, name, scope),
            content,
            principal,
            expected_version=fields.expected_version,
            managed=fields.default,
        )
        return _out(made)

    async def delete(self, name: str, scope: Scope, principal: Principal) -> None:
        """Remove one; raises ``Missing``, ``PermissionDenied``."""
        await self._documents.delete(KIND, name, scope, principal)

    async def expand(self, content: bytes, principal: Principal) -> bytes:
        """A request's body (or a batch's), completed by the fields of its templates.

        A body that is no JSON object is returned as it is: validation tells what is wrong.
        """
        await self._documents.refresh()
        if not any(word in content for word in NAMED) and not await self._default_is_there():
            return content
        await self._assets.refresh()
        try:
            body = msgspec.json.decode(content)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return content
        if not isinstance(body, dict):
            return content
        items = body.get("items")
        if isinstance(items, list):
            body["items"] = [
                await self._filled(one, principal) if isinstance(one, dict) else one
                for one in items
            ]
            return msgspec.json.encode(body)
        return msgspec.json.encode(await self._filled(body, principal))

    async def _default_is_there(self) -> bool:
        """Whether something may be filled in that no request names."""
        return any(_read(one).default for one in self._documents.known) or any(
            path.startswith("assets.") and rule.default is not None
            for one in await self._policies.all()
            for path, rule in one.fields.rules.items()
        )

    async def _filled(self, body: dict[str, Any], principal: Principal) -> dict[str, Any]:
        project, user = body.get("project"), principal.name
        if principal.spawner and isinstance(body.get("user"), str):
            user = body["user"]
        if not isinstance(project, str) or not principal.sees(project):
            return body  # refused soon, for that
        department = self._documents.departments.get(project, "") or self._assets.department(
            project
        )
        try:
            scopes = scopes_over(project=project, department=department, user=user)
        except ValueError:
            return body  # refused soon, for the name of the project or user
        there = [one for one in self._documents.known if one.scope in scopes]
        named = _named(body.get("template"), there)
        kind = str(body.get("kind") or _kind_of(named))
        if named is not None and named.kinds and kind not in named.kinds:
            right = f"one for `{kind}`; `{body['template']}` is for {', '.join(named.kinds)}"
            raise problems.invalid_field("template", Code.UNKNOWN_TEMPLATE, body["template"], right)
        layers: list[Mapping[str, Any]] = [
            one.fields
            for one in map(_read, there)
            if one.default and (not one.kinds or kind in one.kinds)
        ]
        layers += [] if named is None else [named.fields]
        layers.append(_without_empty_assets(body))
        rules = await self._policies.rules_for(project, _kinds(kind, layers))
        bounds = named_by_policies(rules, layers)
        if bounds:
            layers.insert(0, {"assets": {part: one.value for part, one in bounds.items()}})
        return _put_together(kind, layers, self._assets.usable(scopes, bounds))


def _put_together(
    kind: str, layers: Sequence[Mapping[str, Any]], assets: UsableAssets
) -> dict[str, Any]:
    """A request of its layers, the last of which wins, each over the assets that it names."""
    filling: dict[str, Any] = {"kind": kind}
    try:
        for layer in layers:
            filling = _merged(_merged(filling, assets.fields(layer.get("assets"))), layer)
        return assets.with_data(filling)
    except AssetRefused as error:
        code = Code.UNKNOWN_ASSET if error.unknown else Code.INVALID
        raise problems.invalid_field(error.where, code, error.name, error.right) from None


def _named(name: Any, there: Sequence[ScopedRecord]) -> TemplateFields | None:
    """The template that a request names.

    Raises ``InvalidRequest`` for one that is not there for it.
    """
    if not isinstance(name, str):
        return None
    found = [one for one in there if one.name == name]
    if found:
        return _read(found[-1])
    if name in included():
        return included()[name]
    known = ", ".join(f"`{one}`" for one in sorted({one.name for one in there}))
    right = f"one of {known}" if known else "none: there is no template for you here"
    raise problems.invalid_field("template", Code.UNKNOWN_TEMPLATE, name, right)


def _without_empty_assets(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """A request without what its ``assets`` leave open, as null would hide what others name."""
    named = body.get("assets")
    if named is None:
        return {name: value for name, value in body.items() if name != "assets"}
    if not isinstance(named, dict):
        return body
    return {**body, "assets": {part: one for part, one in named.items() if one is not None}}


def _kinds(kind: str, layers: Sequence[Mapping[str, Any]]) -> list[Any]:
    """The kinds whose policies hold: its own, and of a schedule that of what it runs."""
    if kind != "schedule":
        return [kind]
    sections = [one for layer in layers if isinstance(one := layer.get("schedule"), dict)]
    runs = [str(one["runs"]) for one in sections if one.get("runs")]
    return [kind, runs[-1] if runs else constraints.fields(ScheduleSpec)["runs"].default]


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
        model=fields.model,
        changed_at=record.changed_at,
        changed_by=record.changed_by,
    )
