"""Fetches an image from its registry: a program without capabilities, in the user's network.

It reads one request from standard input and writes layers below the present folder. On standard
output it says, a line of JSON each, how far it is and what it found. The registry's protocol, its
authentication and the digests of layers are the library's (``dxf``).
"""

import hashlib
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, TextIO

from dxf import DXF
from dxf.exceptions import DXFAuthInsecureError, DXFError, DXFUnauthorizedError
from requests import Response
from requests.exceptions import RequestException

TIMEOUT_SECONDS: Final = 60.0
TOLD_SECONDS: Final = 0.5
LARGEST_TEXT_BYTES: Final = 4 * 1024**2
PIECE_BYTES: Final = 1024**2
MISSING: Final = "missing"
REFUSED: Final = "refused"
BROKEN: Final = "broken"
UNREACHABLE: Final = "unreachable"
_TEMPORARY: Final = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS})
_ABSENT: Final = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.GONE})
_CLOSED: Final = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})


class BadImage(Exception):  # noqa: N818 - an outcome to tell
    """The registry's answer is no image that can run here; the message says why."""


class Fetch:
    """Fetches one image into the present folder.

    Args:
        client: of its repository.
        asked: architecture, most_bytes, and the folder of known images, by name.
        tell: where progress is written.
    """

    def __init__(self, client: DXF, asked: Mapping[str, Any], tell: TextIO) -> None:
        self._client, self._asked, self._tell = client, asked, tell
        self._done, self._total, self._told = 0, 0, 0.0

    def run(self, version: str) -> dict[str, Any]:
        """Fetch a tag or digest; returns its digest, configuration and files of layers."""
        manifest, digest = self._manifest(version)
        if "manifests" in manifest:
            manifest, digest = self._manifest(self._of_this_machine(manifest))
        if "config" not in manifest or "layers" not in manifest:
            raise BadImage("it is no image of the present formats (OCI, Docker schema 2)")
        if os.path.isdir(f"{self._asked['known']}/{digest.partition(':')[2]}"):  # noqa: PTH112
            return {"digest": digest, "known": True}
        layers = manifest["layers"]
        self._total = sum(int(layer["size"]) for layer in layers)
        if self._total > self._asked["most_bytes"]:
            mib, most = self._total >> 20, self._asked["most_bytes"] >> 20
            raise BadImage(f"it has {mib} MiB to pull, and {most} MiB are the limit here")
        config = json.loads(self._text(manifest["config"]["digest"]))
        for number, layer in enumerate(layers):
            self._layer(layer, Path(f"layer-{number}"))
        return {
            "digest": digest,
            "config": config.get("config") or {},
            "layers": len(layers),
        }

    def _manifest(self, version: str) -> tuple[dict[str, Any], str]:
        text, response = self._client.get_manifest_and_response(version)
        digest = f"sha256:{hashlib.sha256(response.content).hexdigest()}"
        if version.startswith("sha256:") and version != digest:
            raise BadImage(f"its registry gave another content for {version}")
        return json.loads(text), digest

    def _of_this_machine(self, index: Mapping[str, Any]) -> str:
        wanted = {"os": "linux", "architecture": self._asked["architecture"]}
        for one in index["manifests"]:
            if wanted.items() <= one.get("platform", {}).items():
                return str(one["digest"])
        raise BadImage(f"it is not made for {'/'.join(wanted.values())}")

    def _text(self, digest: str) -> bytes:
        found = b""
        for piece in self._pieces(digest):
            found += piece
            if len(found) > LARGEST_TEXT_BYTES:
                raise BadImage("its configuration is too large")
        return found

    def _pieces(self, digest: str) -> Iterator[bytes]:
        """The content of a blob; the library raises at its end if the digest is another."""
        pieces: Any = self._client.pull_blob(digest, chunk_size=PIECE_BYTES)
        yield from pieces

    def _layer(self, layer: Mapping[str, Any], path: Path) -> None:
        left = int(layer["size"])
        with path.open("wb") as file:
            for piece in self._pieces(layer["digest"]):
                left -= len(piece)
                if left < 0:
                    raise BadImage("a layer is larger than its manifest says")
                file.write(piece)
                self._done += len(piece)
                self._say_progress()

    def _say_progress(self) -> None:
        if time.monotonic() >= self._told + TOLD_SECONDS:
            self._told = time.monotonic()
            said = json.dumps({"done": self._done, "total": self._total})
            self._tell.write(f"{said}\n")
            self._tell.flush()


def failure(error: Exception) -> tuple[str, str]:
    """The kind of a failure, and its cause in words."""
    if isinstance(error, DXFUnauthorizedError | DXFAuthInsecureError):
        return REFUSED, "the registry asks for credentials that Carrel does not have"
    response = getattr(error, "response", None)
    if response is not None:
        said = f"the registry answered {response.status_code} {response.reason}"
        if response.status_code in _ABSENT:
            return MISSING, said
        if response.status_code in _CLOSED:
            return REFUSED, said
        temporary = response.status_code in _TEMPORARY or response.status_code >= 500
        return (UNREACHABLE if temporary else BROKEN), said
    if isinstance(error, RequestException | OSError):
        return UNREACHABLE, f"the registry cannot be reached ({type(error).__name__})"
    return BROKEN, str(error) or type(error).__name__


def main() -> None:
    """Answer the request on standard input."""
    asked = json.load(sys.stdin)

    def authenticate(client: Any, response: Response) -> None:
        user, password = asked["login"]
        client.authenticate(user or None, password or None, ["pull"], response)

    client = DXF(
        asked["host"],
        asked["repository"],
        authenticate,
        insecure=asked["plain"],
        timeout=TIMEOUT_SECONDS,
    )
    try:
        with client:
            answer = Fetch(client, asked, sys.stdout).run(asked["version"])
    except (DXFError, BadImage, OSError, ValueError, KeyError, TypeError) as error:
        kind, text = failure(error)
        answer = {"failure": kind, "text": text}
    sys.stdout.write(f"{json.dumps(answer)}\n")


if __name__ == "__main__":
    main()
