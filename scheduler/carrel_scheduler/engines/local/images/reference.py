"""Names of images (``registry.example:5000/team/name:tag@sha256:...``), and who may pull them."""

import base64
import binascii
import re
from pathlib import Path
from typing import Final

import msgspec

from carrel_scheduler.engines.contract import EngineError

DOCKER_HUB: Final = "docker.io"
_HUB_HOST: Final = "registry-1.docker.io"
_FORM: Final = re.compile(
    r"(?:(?P<host>localhost(?::\d+)?|[\w-]+(?:\.[\w-]+)+(?::\d+)?|[\w-]+:\d+)/)?"
    r"(?P<name>[a-z0-9]+(?:(?:\.|_{1,2}|-+|/)[a-z0-9]+)*)"
    r"(?::(?P<tag>\w[\w.-]{0,127}))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?",
    re.ASCII,
)
_LOOPBACK: Final = re.compile(r"(localhost|127\.\d+\.\d+\.\d+)(:\d+)?")


class Reference(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of an image's name.

    Attributes:
        registry: as it was named; ``docker.io`` where none was.
        version: a tag or a digest.
    """

    registry: str
    repository: str
    version: str

    @property
    def host(self) -> str:
        """The host of the registry."""
        return _HUB_HOST if self.registry == DOCKER_HUB else self.registry

    @property
    def plain(self) -> bool:
        """Whether its registry speaks plain HTTP: one of this machine does, as for Docker."""
        return _LOOPBACK.fullmatch(self.registry) is not None

    @property
    def moves(self) -> bool:
        """Whether it is looked up again at each start, as Kubernetes does with ``latest``."""
        return self.version == "latest"


def parse(text: str) -> Reference:
    """Read an image's name. Raises ``EngineError``."""
    found = _FORM.fullmatch(text)
    if found is None:
        raise EngineError(f"image={text!r}: [REGISTRY/]NAME[:TAG][@sha256:DIGEST] is right")
    registry, name = found["host"] or DOCKER_HUB, found["name"]
    if registry == DOCKER_HUB and "/" not in name:
        name = f"library/{name}"
    version = found["digest"] or found["tag"] or "latest"
    return Reference(registry=registry, repository=name, version=version)


class _Login(msgspec.Struct):
    auth: str = ""
    username: str = ""
    password: str = ""


class _Logins(msgspec.Struct):
    auths: dict[str, _Login] = {}


def login_of(registry: str, file: Path | None) -> tuple[str, str]:
    """User and password for a registry in a file that ``docker login`` wrote; empty for none.

    Raises ``EngineError`` for a file that cannot be read.
    """
    if file is None:
        return "", ""
    try:
        known = msgspec.json.decode(file.read_bytes(), type=_Logins).auths
        names = [registry, f"https://{registry}", f"https://{registry}/v1/"]
        if registry == DOCKER_HUB:
            names.append("https://index.docker.io/v1/")
        login = next((known[name] for name in names if name in known), _Login())
        if login.auth:
            user, _, password = base64.b64decode(login.auth).decode().partition(":")
            return user, password
    except (OSError, msgspec.MsgspecError, binascii.Error, UnicodeDecodeError) as error:
        raise EngineError(f"the registry credentials in {file} cannot be read: {error}") from error
    return login.username, login.password
