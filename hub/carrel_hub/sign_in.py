"""Settings of sign-in by a directory, in one YAML file (`carrel up --sign-in FILE`).

On a cluster the same stands under ``sign_in`` in the Hub's file. Secrets are named by the files
that hold them, so that neither this file nor a command line contains one.
"""

from pathlib import Path
from typing import Any, Final, Literal, Self
from urllib.parse import urlsplit

import msgspec

LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
LEAST_REFRESH_SECONDS: Final = 1.0
GROUPS_FILE: Final = "directory-groups.yaml"
"""Beside the Hub's own files: from groups of the directory to projects and admins."""


class Oidc(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True, tag="oidc"):
    """A provider of OpenID Connect (Keycloak, Entra ID, Okta, Google, GitLab, ...).

    Attributes:
        issuer: its address; ``ISSUER/.well-known/openid-configuration`` says the rest.
        client_id: what this installation is called there.
        client_secret_file: a file with the secret of that client.
        scopes: asked for; ``offline_access`` lets the Hub ask for groups while nobody is here.
        username_claim: becomes the user name, in lower case.
        strip_domain: of a user name that is an address, this domain is left out.
        groups_claim: has the names of the user's groups; dots lead into nested objects.
        uid_claim, gid_claim, gids_claim: have the numbers of the account, with ``uid_source``.
        ca_file: certificates (PEM) that the provider's is checked against; empty: the system's.
        button: what the sign-in page calls it.
    """

    issuer: str
    client_id: str
    client_secret_file: Path
    scopes: list[str] = msgspec.field(default_factory=lambda: ["openid", "profile", "email"])
    username_claim: str = "preferred_username"
    strip_domain: str = ""
    groups_claim: str = "groups"
    uid_claim: str = "uid_number"
    gid_claim: str = "gid_number"
    gids_claim: str = "gid_numbers"
    ca_file: Path | None = None
    button: str = "your organisation"

    def __post_init__(self) -> None:
        """Raises ``ValueError``: names the field, the value and what would be right."""
        where = urlsplit(self.issuer)
        if where.scheme != "https" and where.hostname not in LOOPBACK:
            raise ValueError(f"issuer is {self.issuer!r}; it should be an https:// address")
        if "openid" not in self.scopes:
            raise ValueError(f"scopes is {self.scopes!r}; it should contain 'openid'")


class Ldap(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True, tag="ldap"):
    """An LDAP server or Active Directory.

    Attributes:
        url: ``ldaps://host[:port]``, or ``ldap://host[:port]``, which then begins with StartTLS.
        bind_dn: the account that looks people and groups up.
        bind_password_file: a file with its password.
        user_base: below it are the people.
        user_attribute: the attribute that people type as their user name.
        user_filter: who of them may be found, such as ``(objectClass=person)``.
        group_base: below it are the groups; empty: groups are not asked for.
        group_filter: finds the groups of a user; ``{dn}`` and ``{username}`` are filled in.
        group_attribute: the name of a group as the table of groups spells it.
        uid_attribute, gid_attribute: have the numbers of the account, the second also those of
            groups, with ``uid_source``.
        ca_file: certificates (PEM) that the server's is checked against; empty: the system's.
        timeout_seconds: for each connection and answer.
    """

    url: str
    bind_dn: str
    bind_password_file: Path
    user_base: str
    user_attribute: str = "uid"
    user_filter: str = "(objectClass=*)"
    group_base: str = ""
    group_filter: str = "(|(member={dn})(uniqueMember={dn})(memberUid={username}))"
    group_attribute: str = "cn"
    uid_attribute: str = "uidNumber"
    gid_attribute: str = "gidNumber"
    ca_file: Path | None = None
    timeout_seconds: int = 5

    def __post_init__(self) -> None:
        """Raises ``ValueError``: names the field, the value and what would be right."""
        where = urlsplit(self.url)
        if where.scheme not in ("ldap", "ldaps") or not where.hostname or where.path.strip("/"):
            raise ValueError(f"url is {self.url!r}; it should be ldaps://host or ldap://host:port")
        if not self.user_filter.startswith("(") or not self.user_filter.endswith(")"):
            raise ValueError(f"user_filter is {self.user_filter!r}; it should be in parentheses")
        try:
            self.group_filter.format(dn="", username="")
        except (KeyError, IndexError, ValueError):
            raise ValueError(
                f"group_filter is {self.group_filter!r}; "
                "it may contain {dn} and {username} and no other braces"
            ) from None

    @property
    def encrypted(self) -> bool:
        """Whether passwords travel over TLS; without only to this machine itself."""
        return urlsplit(self.url).scheme == "ldaps" or not self.is_here

    @property
    def is_here(self) -> bool:
        """Whether the server is on this machine."""
        return urlsplit(self.url).hostname in LOOPBACK


class SignIn(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Sign-in by a directory.

    Attributes:
        provider: the directory, by its ``type``: ``oidc`` or ``ldap``.
        required_groups: who is in none of these groups is refused; empty: everybody may come.
        admins: names of users who manage everything, beside those of the table of groups.
        uid_source: who gives the numbers (uid, gid, groups) under which people's work runs.
        refresh_seconds: so often the directory is asked again for everybody who is known here.
    """

    provider: Oidc | Ldap
    required_groups: list[str] = []
    admins: list[str] = []
    refresh_seconds: float = 180.0
    uid_source: Literal["carrel", "directory"] = "carrel"

    def __post_init__(self) -> None:
        """Raises ``ValueError``: names the field, the value and what would be right."""
        if self.refresh_seconds < LEAST_REFRESH_SECONDS:
            raise ValueError(
                f"refresh_seconds is {self.refresh_seconds:g}; it should be at least "
                f"{LEAST_REFRESH_SECONDS:g}"
            )

    @property
    def secret_file(self) -> Path:
        """The file with this installation's secret at the provider."""
        provider = self.provider
        if isinstance(provider, Oidc):
            return provider.client_secret_file
        return provider.bind_password_file

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read YAML. Raises ``OSError``, ``msgspec.ValidationError`` or ``msgspec.DecodeError``."""
        return msgspec.yaml.decode(path.read_bytes(), type=cls, dec_hook=as_path)


def as_path(_kind: type, value: object) -> Any:
    """Paths, the only type here that YAML and JSON have not; relative ones are not meant."""
    path = Path(str(value)).expanduser()
    if not path.is_absolute():
        raise ValueError(f"{str(value)!r} should be an absolute path")
    return path


def read_secret(path: Path) -> str:
    """The secret in a file. Raises ``OSError``, or ``ValueError`` when the file is empty."""
    secret = path.read_text().strip()
    if not secret:
        raise ValueError(f"{path} is empty; it should contain the secret")
    return secret
