"""Workload policies and templates."""

from collections.abc import Mapping, Sequence
from typing import Any

from carrel.client.transport import Transport, segment
from carrel_schema.governance.catalogue import CatalogueEntry, CatalogueList
from carrel_schema.governance.policies import EffectivePolicy, PolicyList, PolicyOut
from carrel_schema.governance.templates import TemplateList, TemplateOut


class PolicyMethods:
    """Read and write policies and templates; ``scope`` is text as ``project/vision``."""

    _transport: Transport

    async def list_policies(self, scope: str | None = None) -> Sequence[PolicyOut]:
        """Policies that apply to the caller's work; all for administrators."""
        found = await self._transport.ask(
            "GET", "/policies", PolicyList, parameters={"scope": scope}
        )
        return found.items

    async def get_policy(self, name: str, scope: str) -> PolicyOut:
        """Read a policy."""
        path = f"/policies/{segment(name)}"
        return await self._transport.ask("GET", path, PolicyOut, parameters={"scope": scope})

    async def put_policy(
        self, name: str, scope: str, body: Mapping[str, Any], *, dry_run: bool = False
    ) -> PolicyOut:
        """Make a policy, or replace it (admins); tells which live work it would refuse."""
        parameters = {"scope": scope, "dry_run": dry_run or None}
        path = f"/policies/{segment(name)}"
        return await self._transport.ask("PUT", path, PolicyOut, parameters=parameters, body=body)

    async def delete_policy(self, name: str, scope: str) -> None:
        """Remove a policy (admins)."""
        path = f"/policies/{segment(name)}"
        await self._transport.send("DELETE", path, parameters={"scope": scope})

    async def effective_policy(self, project: str, kind: str = "training") -> EffectivePolicy:
        """The rules of all policies for work of a kind in a project."""
        parameters = {"project": project, "kind": kind}
        return await self._transport.ask(
            "GET", "/effective-policy", EffectivePolicy, parameters=parameters
        )

    async def list_templates(self, scope: str | None = None) -> Sequence[TemplateOut]:
        """Templates that the caller may use."""
        found = await self._transport.ask(
            "GET", "/templates", TemplateList, parameters={"scope": scope}
        )
        return found.items

    async def catalogue(self) -> Sequence[CatalogueEntry]:
        """Models that the caller may serve; ``{"kind": "inference", "template": NAME}`` does."""
        return (await self._transport.ask("GET", "/catalogue", CatalogueList)).items

    async def get_template(self, name: str, scope: str) -> TemplateOut:
        """Read a template."""
        path = f"/templates/{segment(name)}"
        return await self._transport.ask("GET", path, TemplateOut, parameters={"scope": scope})

    async def put_template(self, name: str, scope: str, body: Mapping[str, Any]) -> TemplateOut:
        """Create a template, or replace it."""
        path = f"/templates/{segment(name)}"
        parameters = {"scope": scope}
        return await self._transport.ask("PUT", path, TemplateOut, parameters=parameters, body=body)

    async def delete_template(self, name: str, scope: str) -> None:
        """Remove a template."""
        path = f"/templates/{segment(name)}"
        await self._transport.send("DELETE", path, parameters={"scope": scope})
