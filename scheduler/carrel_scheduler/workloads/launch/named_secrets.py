"""Named secrets of work: checked when it is submitted, read when its tasks start."""

from collections.abc import Mapping, Sequence

from carrel_scheduler.ledger.errors import SecretsUnreadable
from carrel_scheduler.ledger.records import Ledger
from carrel_scheduler.ledger.store import NotFound
from carrel_schema.governance.secrets import REFERENCE_WORDS, SecretReference, references
from carrel_schema.objects import Project, Workload
from carrel_schema.scopes import Scope, scopes_over


class MissingSecret(Exception):  # noqa: N818 - an outcome to tell
    """A variable names a secret or a key that is not there for this work.

    Attributes:
        reference: what it names.
        expected: what would be right.
    """

    def __init__(self, reference: SecretReference, expected: str) -> None:
        super().__init__(
            f"{reference.variable} is `SECRET:{reference.secret},{reference.key}`; it should be "
            f"{expected}"
        )
        self.reference, self.expected = reference, expected


async def check(ledger: Ledger, workload: Workload) -> None:
    """Raise ``MissingSecret`` for what is not there, without reading any value."""
    asked = references(workload.spec.environment)
    if not asked:
        return
    scopes = await _scopes(ledger, workload)
    there = {(one.scope, one.name): one.keys for one in await ledger.named_secrets.list(scopes)}
    for reference in asked:
        found = [
            there[str(scope), reference.secret]
            for scope in scopes
            if (str(scope), reference.secret) in there
        ]
        _check_key(reference, found[-1] if found else None, sorted({name for _, name in there}))


async def environment_of(ledger: Ledger, workload: Workload) -> Mapping[str, str]:
    """Variables with the values of their secrets; raises ``MissingSecret``."""
    asked = references(workload.spec.environment)
    if not asked:
        return {}
    scopes = await _scopes(ledger, workload)
    found: dict[str, str] = {}
    for reference in asked:
        try:
            values = await ledger.named_secrets.nearest(reference.secret, scopes)
        except SecretsUnreadable as error:
            raise MissingSecret(reference, "one that a key of this installation fits") from error
        _check_key(reference, None if values is None else list(values), [])
        found[reference.variable] = (values or {})[reference.key]
    return found


def _check_key(
    reference: SecretReference, keys: Sequence[str] | None, known: Sequence[str]
) -> None:
    if keys is None:
        near = f": {', '.join(f'`{one}`' for one in known)}" if known else ""
        raise MissingSecret(
            reference,
            f"{REFERENCE_WORDS} with a secret of the user, the project, its department or the "
            f"platform{near}",
        )
    if reference.key not in keys:
        named = ", ".join(f"`{key}`" for key in keys)
        raise MissingSecret(reference, f"a key of `{reference.secret}`: {named}")


async def _scopes(ledger: Ledger, workload: Workload) -> tuple[Scope, ...]:
    project = workload.meta.project
    try:
        department = (await ledger.get(Project, project)).spec.department
    except NotFound:
        department = ""
    return scopes_over(project=project, department=department, user=workload.spec.user)
