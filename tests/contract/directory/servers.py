"""A real LDAP server (slapd) and a provider of OpenID Connect, each a process on loopback."""

import hashlib
import html
import os
import re
import socket
import subprocess
import sys
import urllib.request
from base64 import b64encode
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import ldap3

from benchmarks.ports import free_ports
from carrel_hub.sign_in import Ldap, Oidc
from contract.hub.stack import PASSWORD, Person, wait_until

ROOT: Final = "dc=example,dc=org"
LOOKS_UP: Final = f"cn=carrel,{ROOT}"
LOOK_UP_PASSWORD: Final = "looks-things-up"
SLAPD: Final = "/usr/sbin/slapd"
_CONFIGURATION = """
include /etc/ldap/schema/core.schema
include /etc/ldap/schema/cosine.schema
include /etc/ldap/schema/inetorgperson.schema
include /etc/ldap/schema/nis.schema
modulepath /usr/lib/ldap
moduleload back_mdb
pidfile {folder}/slapd.pid
database mdb
suffix "{root}"
rootdn "{looks_up}"
rootpw {password}
directory {folder}/data
"""


class LdapServer:
    """A directory that tests change; it runs until ``stop``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (self.port,) = free_ports(1)
        (folder / "data").mkdir(parents=True)
        (folder / "password").write_text(LOOK_UP_PASSWORD)
        self._configuration = folder / "slapd.conf"
        self._configuration.write_text(
            _CONFIGURATION.format(
                folder=folder, root=ROOT, looks_up=LOOKS_UP, password=LOOK_UP_PASSWORD
            )
        )
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def settings(self) -> Ldap:
        """Carrel's settings for the server."""
        return Ldap(
            url=f"ldap://127.0.0.1:{self.port}",
            bind_dn=LOOKS_UP,
            bind_password_file=self.folder / "password",
            user_base=f"ou=people,{ROOT}",
            user_filter="(objectClass=inetOrgPerson)",
            group_base=f"ou=groups,{ROOT}",
            timeout_seconds=2,
        )

    def start(self) -> None:
        """Start, and wait until it answers."""
        command = [SLAPD, "-d", "0", "-h", self.settings.url, "-f", str(self._configuration)]
        log = (self.folder / "log").open("ab")
        with log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        wait_until(self._answers, 20, "slapd")

    def stop(self) -> None:
        """Stop; what it knows stays."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(20)
            self._process = None

    def fill(self, groups: Mapping[str, Collection[str]]) -> None:
        """Fill the directory: every member of a group is a person with ``PASSWORD``."""
        with self.connected() as connection:
            connection.add(ROOT, ["dcObject", "organization"], {"dc": "example", "o": "example"})
            for unit in ("people", "groups"):
                connection.add(f"ou={unit},{ROOT}", "organizationalUnit")
            for name in sorted({name for members in groups.values() for name in members}):
                self.add_person(connection, name)
            for group, members in groups.items():
                dns = [person_dn(name) for name in members]
                assert connection.add(group_dn(group), "groupOfNames", {"member": dns})

    def add_person(self, connection: Any, name: str) -> None:
        """Add a person with ``PASSWORD``."""
        salt = os.urandom(8)
        digest = hashlib.sha1(PASSWORD.encode() + salt).digest()
        about = {
            "sn": name,
            "cn": name,
            "userPassword": f"{{SSHA}}{b64encode(digest + salt).decode()}",
        }
        assert connection.add(person_dn(name), "inetOrgPerson", about), connection.result

    def leave(self, group: str, name: str) -> None:
        """Take somebody out of a group."""
        change = {"member": [(ldap3.MODIFY_DELETE, [person_dn(name)])]}
        with self.connected() as connection:
            assert connection.modify(group_dn(group), change), connection.result

    def remove(self, name: str) -> None:
        """Remove somebody."""
        with self.connected() as connection:
            assert connection.delete(person_dn(name)), connection.result

    @contextmanager
    def connected(self) -> Iterator[Any]:
        """A connection with the right to change everything."""
        server = ldap3.Server("127.0.0.1", self.port)
        connection = ldap3.Connection(server, LOOKS_UP, LOOK_UP_PASSWORD, auto_bind=True)
        try:
            yield connection
        finally:
            connection.unbind()

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.folder / "log").read_text()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


def person_dn(name: str) -> str:
    """The DN of a person."""
    return f"uid={name},ou=people,{ROOT}"


def group_dn(name: str) -> str:
    """The DN of a group."""
    return f"cn={name},ou=groups,{ROOT}"


class OidcProvider:
    """A provider whose people and tokens tests change."""

    def __init__(self, folder: Path, token_seconds: int = 2) -> None:
        (self.port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{self.port}"
        self.folder, self._token_seconds = folder, token_seconds
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "secret").write_text("of-the-client")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def settings(self) -> Oidc:
        """Carrel's settings for the provider."""
        return Oidc(
            issuer=self.url,
            client_id="carrel",
            client_secret_file=self.folder / "secret",
            strip_domain="example.org",
        )

    def start(self) -> None:
        """Start, and wait until it answers."""
        program = str(Path(sys.executable).with_name("oidc-provider-mock"))
        command = [program, "--port", str(self.port), "-e", str(self._token_seconds)]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        wait_until(self._answers, 30, "the provider")

    def stop(self) -> None:
        """Stop; it forgets everything."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(20)
            self._process = None

    async def put(self, subject: str, name: str, groups: Collection[str], **more: Any) -> None:
        """Add a person, or replace their claims."""
        claims: dict[str, Any] = {"preferred_username": name, "groups": list(groups), **more}
        async with aiohttp.ClientSession() as session:
            url = f"{self.url}/users/{subject}"
            async with session.put(url, json=claims) as answer:
                assert answer.status < 300, await answer.text()

    async def revoke(self, subject: str) -> None:
        """None of somebody's tokens is worth anything any more."""
        url = f"{self.url}/users/{subject}/revoke-tokens"
        async with aiohttp.ClientSession() as session, session.post(url) as answer:
            assert answer.status < 300, await answer.text()

    async def sign_in(self, person: Person, subject: str) -> tuple[int, str]:
        """Sign in from the Hub's button through the provider's page; returns status and page."""
        async with person.session.get(f"{person.stack.url}/hub/oauth_login") as page:
            assert page.url.port == self.port, str(page.url)
            where = page.url
        async with person.session.post(where, data={"sub": subject}) as answer:
            return answer.status, await answer.text()

    def _answers(self) -> bool:
        try:
            url = f"{self.url}/.well-known/openid-configuration"
            with urllib.request.urlopen(url, timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


def sentence(page: str) -> str:
    """The text of an error page in one line."""
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", page)))
