"""Workload policies: written by administrators, applied to every submission of every channel."""

import copy
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from pydantic import ValidationError

from carrel_scheduler.api import problems, refusals
from carrel_scheduler.api.dependencies import ApiDependencies
from carrel_scheduler.api.models import validators
from carrel_scheduler.api.principals.identity import Principal
from carrel_scheduler.api.problems import Code
from carrel_scheduler.api.services.governance.budgets import BudgetService
from carrel_scheduler.ledger.scoped_records import ScopedRecord, scope_exists
from carrel_scheduler.ledger.store import ObjectExists, ObjectNotFound, VersionConflict
from carrel_scheduler.policy import workload_policy
from carrel_scheduler.policy.assets import DATA, NAMED_BY, AssetRecords, UsableAssets
from carrel_scheduler.policy.policy_records import KIND, PolicyRecords, as_request, kinds_of
from carrel_scheduler.policy.workload_policy import ScopedPolicy, Violation
from carrel_scheduler.workloads.state.phases import FINAL
from carrel_schema.governance.policies import (
    EffectivePolicy,
    PolicyFields,
    PolicyOut,
    RefusedWork,
)
from carrel_schema.kinds import PARTS, WorkloadKind
from carrel_schema.objects import Project, Workload
from carrel_schema.problems import FieldError
from carrel_schema.scopes import LEVELS, PLATFORM, Scope, scopes_over
from carrel_schema.wire import WorkloadCreate

MOST_TOLD: Final = 100


class Policies:
    """Reads, writes and applies policies."""

    def __init__(self, deps: ApiDependencies, budgets: BudgetService) -> None:
        self._deps, self._budgets = deps, budgets
        self.records = PolicyRecords(deps.ledger, deps.clock)

    async def admit(self, body: WorkloadCreate, user: str) -> WorkloadCreate:
        """A user's request with the defaults of its policies.

        Raises ``InvalidRequest`` with all violations, ``PermissionDenied`` where a budget is used
        up.
        """
        if body.gpus or body.gpu_memory_bytes or body.mig_profile:
            await self._budgets.admit(body.project, user)
        rules = await self.records.rules_for(body.project, kinds_of(body))
        if not rules:
            return body
        filled = workload_policy.apply(rules, body)
        found = workload_policy.violations(rules, filled)
        if found:
            raise _refusal(found)
        return filled

    async def check_changed(self, before: Workload, after: Workload) -> None:
        """Refuse a change of work that breaks a rule which held before."""
        if found := await self._newly_broken(before, after):
            raise _refusal(found)

    async def may_be_preemptible(self, workload: Workload) -> bool:
        """Whether the policies would let the same work in as preemptible."""
        spec = msgspec.structs.replace(workload.spec, preemptible=True)
        changed = msgspec.structs.replace(workload, spec=spec)
        return not await self._newly_broken(workload, changed)

    async def _newly_broken(self, before: Workload, after: Workload) -> list[Violation]:
        known = {one.sentence for one in await self.records.violations_of(before)}
        return [one for one in await self.records.violations_of(after) if one.sentence not in known]

    async def effective(self, project: str, kind: WorkloadKind) -> EffectivePolicy:
        """The combined policies for work of a kind in a project."""
        rules = await self.records.rules_for(project, [kind])
        return EffectivePolicy(project=project, kind=kind, rules=rules)

    async def visible(self, principal: Principal, scope: Scope | None) -> Sequence[PolicyOut]:
        """Policies that apply to work which the caller may submit or read."""
        found = await self._deps.ledger.scoped.list(KIND, scopes=None if scope is None else [scope])
        departments: set[str] = set()
        if not principal.sees_all:
            projects = (await self._deps.ledger.list(Project)).items
            departments = {one.spec.department for one in projects if principal.sees(one.meta.name)}
        return [
            _out(one)
            for one in found
            if principal.sees_all
            or one.scope.level == "platform"
            or (one.scope.level == "department" and one.scope.name in departments)
            or principal.may("policies:read", one.scope)
        ]

    async def get(self, name: str, scope: Scope, principal: Principal) -> PolicyOut:
        """Read a policy; raises ``Missing``."""
        for one in await self.visible(principal, scope):
            if one.name == name:
                return one
        raise _missing(name, scope)

    async def put(
        self, name: str, scope: Scope, fields: PolicyFields, principal: Principal, *, dry_run: bool
    ) -> PolicyOut:
        """Create a policy, or replace it; returns the live work that would violate it.

        Raises ``InvalidRequest`` for rules that make no sense or loosen those of a wider scope.
        """
        await self._check_scope(scope)
        content = msgspec.structs.replace(fields, expected_version=None)
        policy = ScopedPolicy(name, scope, content)
        self._check_rules(content)
        await self._check_wider(policy)
        await self._check_assets(policy)
        record = ScopedRecord(
            kind=KIND, scope=scope, name=name, content=msgspec.Raw(msgspec.json.encode(content))
        )
        if not dry_run:
            try:
                record = await self._deps.ledger.scoped.put(
                    record, actor=principal.name, expected_version=fields.expected_version
                )
            except (ObjectExists, VersionConflict, ObjectNotFound) as error:
                raise problems.Conflicting(Code.CONFLICT, str(error)) from error
            self.records.forget()
        refused = await self._would_refuse(policy)
        return msgspec.structs.replace(_out(record), would_refuse=refused)

    async def delete(self, name: str, scope: Scope) -> None:
        """Remove one; raises ``Missing``."""
        try:
            await self._deps.ledger.scoped.remove(KIND, scope, name)
        except ObjectNotFound:
            raise _missing(name, scope) from None
        self.records.forget()

    async def _check_scope(self, scope: Scope) -> None:
        if scope.level == "user":
            right = "`platform`, `department/NAME` or `project/NAME`"
            raise problems.invalid_field("scope", Code.WRONG_FORM, str(scope), right)
        if not await scope_exists(self._deps.ledger, scope):
            code = Code.UNKNOWN_PROJECT if scope.level == "project" else Code.UNKNOWN_DEPARTMENT
            right = f"a {scope.level} that is there"
            raise problems.invalid_field("scope", code, str(scope), right)

    def _check_rules(self, fields: PolicyFields) -> None:
        errors: list[FieldError] = []
        for path, rule in fields.rules.items():
            wrong = workload_policy.check_rule(path, rule)
            if wrong is not None:
                part, right = wrong
                where = f"rules.{path}.{part}" if part else f"rules.{path}"
                code = Code.BAD_RULE if workload_policy.hint_of(path) else Code.UNKNOWN_FIELD
                errors.append(
                    FieldError(
                        field=where, code=code, value=getattr(rule, part, None), expected=right
                    )
                )
                continue
            errors += self._unfit_values(path, [rule.default])
            first = path.partition(".")[0]
            patterns = [one for one in rule.allowed if not (isinstance(one, str) and "*" in one)]
            hint = workload_policy.hint_of(path)
            if getattr(hint, "__origin__", hint) is not list and first != "volumes":
                errors += self._unfit_values(path, patterns)
        if errors:
            said = "; ".join(f"{one.field}: expected {one.expected}" for one in errors[:3])
            raise problems.InvalidRequest(errors[0].code, said, errors=errors)

    def _unfit_values(self, path: str, values: Sequence[Any]) -> list[FieldError]:
        """Values that are invalid for this field in any request."""
        found: list[FieldError] = []
        first, _, rest = path.partition(".")
        for value in values:
            if value is None:
                continue
            body = {first: {rest: value} if rest else value}
            try:
                validators.patch_of(WorkloadCreate).model_validate(copy.deepcopy(body))
            except ValidationError as error:
                told = refusals.from_validation(error, body).errors[0]
                found.append(
                    FieldError(
                        field=f"rules.{path}",
                        code=told.code,
                        value=problems.shown(value),
                        expected=told.expected,
                    )
                )
        return found

    async def _check_wider(self, policy: ScopedPolicy) -> None:
        over = await self._over(policy.scope)
        level = LEVELS.index(policy.scope.level)
        wider = [one for one in over if LEVELS.index(one.scope.level) < level]
        found = workload_policy.conflicts(policy, wider)
        if found:
            errors = [
                FieldError(
                    field=f"rules.{where}",
                    code=Code.LOOSENS_POLICY,
                    value=problems.shown(value),
                    expected=right,
                )
                for where, value, right in found
            ]
            said = "; ".join(f"{one.field}: expected {one.expected}" for one in errors[:3])
            raise problems.InvalidRequest(Code.LOOSENS_POLICY, said, errors=errors)

    async def _check_assets(self, policy: ScopedPolicy) -> None:
        """Refuse a default that names an asset which is not there for the whole scope."""
        rules = policy.fields.rules
        named = {
            part: rule.default if isinstance(rule.default, list) else [rule.default]
            for part in (*NAMED_BY, DATA)
            if (rule := rules.get(f"assets.{part}")) is not None and rule.default is not None
        }
        if not named:
            return
        records = await AssetRecords(self._deps.ledger, self._deps.clock).all()
        assets = UsableAssets(records, await self._containing(policy.scope))
        for part, wanted in named.items():
            known = assets.names(part)
            for name in wanted:
                if name not in known:
                    listed = ", ".join(f"`{one}`" for one in known)
                    right = f"an asset of {policy.scope} or a wider scope: {listed or 'none yet'}"
                    where = f"rules.assets.{part}.default"
                    raise problems.invalid_field(where, Code.UNKNOWN_ASSET, name, right)

    async def _containing(self, scope: Scope) -> Sequence[Scope]:
        """A scope and those that contain it, from the widest to the narrowest."""
        if scope.level != "project":
            return list(dict.fromkeys((PLATFORM, scope)))
        project = await self._deps.ledger.get(Project, scope.name)
        return scopes_over(project=scope.name, department=project.spec.department)

    async def _over(self, scope: Scope) -> Sequence[ScopedPolicy]:
        if scope.level == "project":
            return await self.records.over(scope.name)
        return [one for one in await self.records.all() if one.scope in (Scope(), scope)]

    async def _would_refuse(self, policy: ScopedPolicy) -> list[RefusedWork]:
        """Live work that violates this one policy."""
        scope, found = policy.scope, list[RefusedWork]()
        projects = [scope.name] if scope.level == "project" else None
        if scope.level == "department":
            everyone = (await self._deps.ledger.list(Project)).items
            projects = [one.meta.name for one in everyone if one.spec.department == scope.name]
        page = await self._deps.ledger.list(
            Workload, projects=projects, without_kinds=sorted(PARTS)
        )
        for workload in page.items:
            if workload.status.phase in FINAL or len(found) >= MOST_TOLD:
                continue
            rules = workload_policy.merge([policy], kinds_of(workload.spec))
            broken = workload_policy.violations(rules, as_request(workload), requested=False)
            if broken:
                meta = workload.meta
                found.append(
                    RefusedWork(project=meta.project, name=meta.name, sentence=broken[0].sentence)
                )
        return found


def _refusal(found: Sequence[Violation]) -> problems.InvalidRequest:
    errors = [
        FieldError(
            field=one.field,
            code=Code.POLICY,
            value=problems.shown(one.value) if not isinstance(one.value, dict | list) else None,
            expected=one.expected,
        )
        for one in found
    ]
    return problems.InvalidRequest(
        Code.POLICY, "; ".join(one.sentence for one in found), errors=errors
    )


def _out(record: ScopedRecord) -> PolicyOut:
    fields = msgspec.json.decode(record.content, type=PolicyFields)
    return PolicyOut(
        name=record.name,
        scope=str(record.scope),
        version=record.version,
        description=fields.description,
        kinds=fields.kinds,
        rules=fields.rules,
        changed_at=record.changed_at,
        changed_by=record.changed_by,
    )


def _missing(name: str, scope: Scope) -> problems.Missing:
    return problems.Missing(
        Code.NOT_FOUND, f"There is no policy `{name}` of {scope} that you can see"
    )
