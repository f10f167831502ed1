"""Sign-in with an LDAP server, by ``ldap3``.

People are found with the account that looks things up, and their password is checked by binding as
who was found. Both are done in threads with time-outs: a server that does not answer never holds
the Hub up.
"""

import asyncio
import ssl
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import ldap3
from ldap3.core.exceptions import LDAPException
from ldap3.core.results import RESULT_INVALID_CREDENTIALS, RESULT_SUCCESS
from ldap3.utils.conv import escape_filter_chars
from tornado import web
from typing_extensions import override

from carrel_hub.accounts.sources import remember_browser, source_of_attempt
from carrel_hub.accounts.throttle import Busy, HashingSlots, Throttle
from carrel_hub.directory.authenticator import DirectoryAuthenticator
from carrel_hub.directory.controller import (
    DirectoryState,
    DirectoryUnreachableError,
    OneUserUnknownError,
)
from carrel_hub.directory.numbers import posix_identity
from carrel_hub.sign_in import Ldap, read_secret
from carrel_schema.governance.people import PosixIdentity

LONGEST_PASSWORD: Final = 1024
LDAPS_PORT: Final = 636
LDAP_PORT: Final = 389


@dataclass(frozen=True, slots=True)
class DirectoryEntry:
    """A user in the directory."""

    dn: str
    groups: frozenset[str]
    posix: PosixIdentity


class LdapDirectory:
    """Questions to the server; every one blocks, and raises ``DirectoryUnreachableError``."""

    def __init__(self, settings: Ldap) -> None:
        where = urlsplit(settings.url)
        self._settings, self._host = settings, where.hostname
        self._secure = where.scheme == "ldaps"
        self._port = where.port or (LDAPS_PORT if self._secure else LDAP_PORT)
        self._start_tls = not self._secure and settings.encrypted

    def find(self, name: str) -> DirectoryEntry | None:
        """The one person of this user name, with their groups; ``None``: there is none."""
        settings = self._settings
        wanted = f"(&{settings.user_filter}({settings.user_attribute}={escape_filter_chars(name)}))"
        with self._bound_to_look_up() as connection:
            asked = (settings.user_attribute, settings.uid_attribute, settings.gid_attribute)
            found = self._search(connection, settings.user_base, wanted, asked)
            if len(found) > 1:
                raise OneUserUnknownError(f"{len(found)} entries have the user name {name}")
            if not found:
                return None
            dn = str(found[0]["dn"])
            groups, gids = self._groups(connection, dn, name)
            about = found[0]["attributes"]
            posix = posix_identity(
                about.get(settings.uid_attribute), about.get(settings.gid_attribute), gids
            )
            return DirectoryEntry(dn, groups, posix)

    def is_password(self, dn: str, password: str) -> bool:
        """Whether the password is that of the entry. An empty one never is."""
        if not password:
            return False  # a server takes it for a wish to be nobody, and agrees
        connection = self._connection(dn, password)
        try:
            return self._bind(connection)
        finally:
            _close(connection)

    def _groups(self, connection: Any, dn: str, name: str) -> tuple[frozenset[str], list[Any]]:
        """The names of the groups, and the numbers of those that have one."""
        settings = self._settings
        if not settings.group_base:
            return frozenset(), []
        wanted = settings.group_filter.format(
            dn=escape_filter_chars(dn), username=escape_filter_chars(name)
        )
        attribute = settings.group_attribute
        asked = (attribute, settings.gid_attribute)
        found = [
            one["attributes"]
            for one in self._search(connection, settings.group_base, wanted, asked)
        ]
        names = frozenset(str(value) for one in found for value in one[attribute])
        return names, [value for one in found for value in one.get(settings.gid_attribute) or ()]

    def _search(
        self, connection: Any, base: str, wanted: str, attributes: Sequence[str]
    ) -> list[dict[str, Any]]:
        try:
            connection.search(base, wanted, attributes=list(attributes), paged_size=None)
        except (LDAPException, OSError) as error:
            raise DirectoryUnreachableError(f"{base}: {error}") from error
        result = connection.result
        if result["result"] != RESULT_SUCCESS:
            raise DirectoryUnreachableError(f"{base}: {result['description']}")
        return [one for one in connection.response if one.get("type") == "searchResEntry"]

    @contextmanager
    def _bound_to_look_up(self) -> Iterator[Any]:
        settings = self._settings
        try:
            password = read_secret(settings.bind_password_file)
        except (OSError, ValueError) as error:
            raise DirectoryUnreachableError(f"bind_password_file: {error}") from error
        connection = self._connection(settings.bind_dn, password)
        try:
            if not self._bind(connection):
                raise DirectoryUnreachableError(
                    f"the server refuses the password of {settings.bind_dn}"
                )
            yield connection
        finally:
            _close(connection)

    def _connection(self, dn: str, password: str) -> Any:
        """A connection, not open yet, with a server of its own: ldap3 avoids one that failed."""
        settings = self._settings
        tls = ldap3.Tls(
            validate=ssl.CERT_REQUIRED,
            version=ssl.PROTOCOL_TLS_CLIENT,
            ca_certs_file=str(settings.ca_file) if settings.ca_file is not None else None,
        )
        server = ldap3.Server(
            self._host,
            port=self._port,
            use_ssl=self._secure,
            tls=tls,
            connect_timeout=settings.timeout_seconds,
            get_info=ldap3.NONE,
        )
        return ldap3.Connection(
            server,
            user=dn,
            password=password,
            receive_timeout=settings.timeout_seconds,
            auto_referrals=False,
            read_only=True,
        )

    def _bind(self, connection: Any) -> bool:
        """Whether the server takes the password. Raises ``DirectoryUnreachableError``."""
        try:
            connection.open()
            if self._start_tls and not connection.start_tls():
                raise DirectoryUnreachableError("the server does not speak TLS")
            if connection.bind():
                return True
        except (LDAPException, OSError) as error:
            raise DirectoryUnreachableError(str(error)) from error
        if connection.result["result"] != RESULT_INVALID_CREDENTIALS:
            raise DirectoryUnreachableError(str(connection.result["description"]))
        return False


def _close(connection: Any) -> None:
    if connection.bound or not connection.closed:
        connection.unbind()


class LdapAuthenticator(DirectoryAuthenticator):
    """The Hub's sign-in with user name and password of an LDAP server."""

    def __init__(self, **kwargs: Any) -> None:
        base: Any = super()
        base.__init__(**kwargs)
        provider = self.sign_in.provider
        if not isinstance(provider, Ldap):
            raise TypeError(f"sign_in.provider is {type(provider).__name__}, not Ldap")
        self.directory = LdapDirectory(provider)
        self.throttle = Throttle(time.monotonic)
        self.slots = HashingSlots()

    @override
    async def authenticate(self, handler: Any, data: dict[str, str]) -> dict[str, Any] | None:
        """The user's name and whether they are an admin; ``None`` when the password is wrong."""
        name = data.get("username", "").strip().lower()
        password = data.get("password", "")
        source = source_of_attempt(handler, name, self.app.trusted_downstream_ips)
        wait = self.throttle.begin(source, name)
        if wait > 0:
            raise web.HTTPError(429, f"Too many wrong passwords; try again in {round(wait)} s.")
        try:
            async with self.slots.one():
                entry = await asyncio.to_thread(self._entry_of, name, password)
        except Busy:
            raise web.HTTPError(503, "Too many people sign in at once; try again.") from None
        except DirectoryUnreachableError as error:
            self.log.warning("Nobody can sign in, the directory does not answer: %s", error)
            raise web.HTTPError(503, "The directory does not answer; try again.") from error
        if entry is None:
            return None
        self.throttle.succeeded(source, name)
        await self.table.refresh()
        admin = self.admit(self.local_name(name), entry.groups)
        await self.report_numbers(name, entry.posix)
        remember_browser(handler, name)
        return {"name": name, "admin": admin}

    @override
    async def ask(self, user: Any) -> DirectoryState:
        """Look the user up again."""
        entry = await asyncio.to_thread(self.directory.find, user.name)
        if entry is None:
            return DirectoryState.GONE
        self.admit(user.name, entry.groups)
        await self.report_again(user.name, entry.posix)
        return DirectoryState.KNOWN

    def _entry_of(self, name: str, password: str) -> DirectoryEntry | None:
        if not name or not password or len(password) > LONGEST_PASSWORD:
            return None
        entry = self.directory.find(name)
        if entry is None or not self.directory.is_password(entry.dn, password):
            return None
        return entry
