"""Named secrets of work: checked when it is submitted, read when its tasks start.

Variables get values by name; repositories get credentials by name; images are pulled with whatever
registry credentials there are for the work.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from carrel_scheduler.engines.contract import RegistryLogin
from carrel_scheduler.ledger.errors import SecretsUnreadable
from carrel_scheduler.ledger.records import Ledger
from carrel_scheduler.ledger.store import ObjectNotFound
from carrel_schema.governance.secrets import REFERENCE_WORDS, SecretReference, references
from carrel_schema.objects import Project, Workload
from carrel_schema.scopes import Scope, scopes_over

GIT_KEYS: Final = ("password", "private_key")
"""One of these a repository's secret has to have."""


class MissingSecret(Exception):  # noqa: N818 - an outcome to tell
    """A field names a secret or a key that is not there for this work.

    Attributes:
        field: of the specification.
        name: its value.
        expected: what would be right.
    """

    def __init__(self, field: str, name: str, expected: str) -> None:
        super().__init__(f"{field} is `{name}`; it should be {expected}")
        self.field, self.name, self.expected = field, name, expected


class GitSecret(NamedTuple):
    """The secret for a repository; ``number`` 0 is that of the code itself."""

    number: int
    field: str
    secret: str


async def check(ledger: Ledger, workload: Workload) -> None:
    """Raise ``MissingSecret`` for a secret that does not exist, without reading any value."""
    asked = references(workload.spec.environment)
    repositories = list(git_secrets(workload))
    if not asked and not repositories:
        return
    scopes = await _scopes(ledger, workload)
    there = {(one.scope, one.name): one.keys for one in await ledger.named_secrets.list(scopes)}
    names = sorted({name for _, name in there})

    def keys_of(name: str) -> Sequence[str] | None:
        found = [there[str(one), name] for one in scopes if (str(one), name) in there]
        return found[-1] if found else None

    for reference in asked:
        _check_key(reference, keys_of(reference.secret), names)
    for one in repositories:
        _check_git(one, keys_of(one.secret), names)


async def environment_of(ledger: Ledger, workload: Workload) -> Mapping[str, str]:
    """Variables with the values of their secrets, those of repositories among them.

    Raises ``MissingSecret``.
    """
    asked = references(workload.spec.environment)
    repositories = list(git_secrets(workload))
    if not asked and not repositories:
        return {}
    scopes = await _scopes(ledger, workload)

    async def values_of(field: str, name: str) -> Mapping[str, str] | None:
        try:
            return await ledger.named_secrets.nearest(name, scopes)
        except SecretsUnreadable as error:
            right = "one that a key of this installation fits"
            raise MissingSecret(field, name, right) from error

    found: dict[str, str] = {}
    for reference in asked:
        values = await values_of(f"environment.{reference.variable}", reference.secret)
        _check_key(reference, None if values is None else list(values), [])
        found[reference.variable] = (values or {})[reference.key]
    for one in repositories:
        values = await values_of(one.field, one.secret)
        _check_git(one, None if values is None else list(values), [])
        found |= {
            f"CARREL_GIT_{one.number}_{key.upper()}": text
            for key, text in (values or {}).items()
            if key in ("username", "known_hosts", *GIT_KEYS)
        }
    return found


def git_secrets(workload: Workload) -> Iterator[GitSecret]:
    """The secrets named by the workload's repositories."""
    code = workload.spec.code
    if code is not None and code.secret:
        yield GitSecret(0, "code.secret", code.secret)
    for number, one in enumerate(workload.spec.repositories):
        if one.secret:
            yield GitSecret(number + 1, f"repositories.{number}.secret", one.secret)


async def registry_logins(
    ledger: Ledger, workloads: Sequence[Workload]
) -> Mapping[str, tuple[RegistryLogin, ...]]:
    """Credentials for the images of this work, by uid; of a registry those of the narrowest scope.

    One that no key of this installation fits is left out: the pull says that there are none.
    """
    known = await ledger.named_secrets.list()
    there = {one.scope for one in known if one.type == "registry"}
    found: dict[str, tuple[RegistryLogin, ...]] = {}
    for workload in workloads if there else ():
        logins: dict[str, RegistryLogin] = {}
        for scope in await _scopes(ledger, workload):
            names = [one.name for one in known if (one.scope, one.type) == (str(scope), "registry")]
            for name in names:
                with suppress(SecretsUnreadable):
                    values = await ledger.named_secrets.values(name, scope)
                    if values is not None:
                        logins[values["server"]] = RegistryLogin(
                            server=values["server"],
                            username=values["username"],
                            password=values["password"],
                        )
        found[workload.meta.uid] = tuple(logins.values())
    return found


def _check_key(
    reference: SecretReference, keys: Sequence[str] | None, known: Sequence[str]
) -> None:
    field, name = f"environment.{reference.variable}", f"SECRET:{reference.secret},{reference.key}"
    if keys is None:
        right = f"{REFERENCE_WORDS} with {_of_scopes(known)}"
        raise MissingSecret(field, name, right)
    if reference.key not in keys:
        named = ", ".join(f"`{key}`" for key in keys)
        raise MissingSecret(field, name, f"a key of `{reference.secret}`: {named}")


def _check_git(asked: GitSecret, keys: Sequence[str] | None, known: Sequence[str]) -> None:
    if keys is None:
        raise MissingSecret(asked.field, asked.secret, _of_scopes(known))
    if not set(GIT_KEYS) & set(keys):
        right = "a secret of the type `password` or `ssh-key`"
        raise MissingSecret(asked.field, asked.secret, right)


def _of_scopes(known: Sequence[str]) -> str:
    near = f": {', '.join(f'`{one}`' for one in known)}" if known else ""
    return f"a secret of the user, the project, its department or the platform{near}"


async def _scopes(ledger: Ledger, workload: Workload) -> tuple[Scope, ...]:
    project = workload.meta.project
    try:
        department = (await ledger.get(Project, project)).spec.department
    except ObjectNotFound:
        department = ""
    return scopes_over(project=project, department=department, user=workload.spec.user)
