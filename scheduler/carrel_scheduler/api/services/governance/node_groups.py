"""Node groups: definitions, with their present nodes."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

from carrel_scheduler.api import problems
from carrel_scheduler.api.dependencies import ApiDependencies
from carrel_scheduler.api.principals.identity import Principal
from carrel_scheduler.api.problems import Code
from carrel_scheduler.core.resources import MILLI
from carrel_scheduler.engines.node_group_store import NodeGroupStore, StoredNodeGroup
from carrel_scheduler.ledger.store import ObjectExists, ObjectNotFound, VersionConflict
from carrel_schema.answers import NodeView
from carrel_schema.governance.node_groups import (
    NodeGroupChange,
    NodeGroupCreate,
    NodeGroupFields,
    NodeGroupOut,
)
from carrel_schema.groups import NodeGroupSpec
from carrel_schema.objects import Department, Project


class NodeGroupService:
    """Reads, writes and checks node groups."""

    def __init__(self, deps: ApiDependencies) -> None:
        self._deps = deps

    @property
    def _store(self) -> NodeGroupStore:
        return self._deps.node_groups

    async def all(self) -> Sequence[NodeGroupOut]:
        """The defined groups, and others to which nodes belong, by name."""
        inside: defaultdict[str, list[NodeView]] = defaultdict(list)
        for node in self._deps.live.nodes():
            inside[node.group].append(node)
        stored = {one.name: one for one in await self._store.all()}
        names = sorted((stored.keys() | inside.keys()) - {""})
        return [_out(name, stored.get(name), inside.get(name, ())) for name in names]

    async def create(self, body: NodeGroupCreate, principal: Principal) -> NodeGroupOut:
        """Define one. Raises ``InvalidRequest``, ``Conflicting``."""
        await self._check(body)
        with _as_problems(body.name):
            await self._store.create(body.name, _spec(body), principal.name)
        return await self._one(body.name)

    async def replace(self, name: str, body: NodeGroupChange, principal: Principal) -> NodeGroupOut:
        """Define one anew. Raises ``InvalidRequest``, ``Missing``, ``Conflicting``."""
        await self._check(body)
        with _as_problems(name):
            version = body.expected_version
            await self._store.replace(name, _spec(body), principal.name, version)
        return await self._one(name)

    async def delete(self, name: str) -> None:
        """Delete a definition that restricts nobody. Raises ``Missing``, ``Conflicting``."""
        there = [one.name for one in await self._store.all()]
        if name not in there:
            raise _missing(name)
        projects = (await self._deps.ledger.list(Project)).items
        departments = (await self._deps.ledger.list(Department)).items
        for kind, owners in (("project", projects), ("department", departments)):
            for owner in owners:
                lists, whose = owner.spec.node_groups, f"the {kind} `{owner.meta.name}`"
                rule = ""
                if name in (*lists.training, *lists.interactive):
                    rule = f"Work of {whose} is kept to `{name}`"
                elif name in owner.spec.node_group_limits:
                    rule = f"GPUs of {whose} are limited in `{name}`"
                elif name in owner.spec.node_group_quotas:
                    rule = f"GPUs are guaranteed to {whose} in `{name}`"
                if rule:
                    code = Code.NODE_GROUP_IN_USE
                    raise problems.Conflicting(code, f"{rule}; change that first")
        with _as_problems(name):
            await self._store.delete(name)

    async def _one(self, name: str) -> NodeGroupOut:
        for found in await self.all():
            if found.name == name:
                return found
        raise _missing(name)

    async def _check(self, fields: NodeGroupFields) -> None:
        """Refuse groups without members, and unknown projects and departments."""
        if not fields.match_labels and not fields.node_names:
            expected = "at least one label, or a name in `node_names`"
            raise problems.invalid_field("match_labels", Code.MISSING_FIELD, {}, expected)
        projects = {one.meta.name for one in (await self._deps.ledger.list(Project)).items}
        _check_known("projects", fields.projects, projects, Code.UNKNOWN_PROJECT)
        if fields.departments:
            found = (await self._deps.ledger.list(Department)).items
            known = {one.meta.name for one in found}
            _check_known("departments", fields.departments, known, Code.UNKNOWN_DEPARTMENT)


def _check_known(field: str, names: Sequence[str], known: Collection[str], code: Code) -> None:
    for number, name in enumerate(names):
        if name not in known:
            expected = f"the name of one of the {field} that exist"
            raise problems.invalid_field(f"{field}.{number}", code, name, expected)


@contextmanager
def _as_problems(name: str) -> Iterator[None]:
    try:
        yield
    except ObjectNotFound:
        raise _missing(name) from None
    except ObjectExists:
        raise problems.Conflicting(
            Code.ALREADY_EXISTS, f"A node group `{name}` is defined already"
        ) from None
    except VersionConflict:
        raise problems.Conflicting(
            Code.CONFLICT, f"`{name}` was changed meanwhile; look at it and try again"
        ) from None


def _missing(name: str) -> problems.Missing:
    return problems.Missing(Code.NOT_FOUND, f"There is no definition of a node group `{name}`")


def _spec(fields: NodeGroupFields) -> NodeGroupSpec:
    return NodeGroupSpec(
        description=fields.description,
        match_labels=dict(fields.match_labels),
        node_names=tuple(fields.node_names),
        role=fields.role,
        projects=tuple(fields.projects),
        departments=tuple(fields.departments),
    )


def _out(name: str, stored: StoredNodeGroup | None, nodes: Sequence[NodeView]) -> NodeGroupOut:
    spec = stored.spec if stored else NodeGroupSpec()
    gpus = sum(node.gpu_milli for node in nodes)
    return NodeGroupOut(
        name=name,
        description=spec.description,
        match_labels=spec.match_labels,
        node_names=spec.node_names,
        role=spec.role,
        projects=spec.projects,
        departments=spec.departments,
        defined=stored is not None,
        version=stored.version if stored else "",
        nodes=[node.name for node in nodes],
        gpus=gpus / MILLI,
        free_gpus=(gpus - sum(node.gpu_allocated_milli for node in nodes)) / MILLI,
    )
