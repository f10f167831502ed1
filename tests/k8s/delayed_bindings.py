"""Bindings that the API server admitted and has not written yet: a webhook delays them."""

import asyncio
import base64
import datetime as dt
import ipaddress
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from carrel_scheduler.kube.errors import KubeError
from k8s.cluster.plane import ControlPlane

HOOKS: Final = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
NAME: Final = "delayed.carrel.test"
PROBE_SECONDS: Final = 0.1


@dataclass
class DelayedBindings:
    """The webhook. ``came``: a binding waits in it; set ``go`` to let it pass.

    Dry runs pass at once, and set ``asked``.
    """

    came: asyncio.Event = field(default_factory=asyncio.Event)
    go: asyncio.Event = field(default_factory=asyncio.Event)
    asked: asyncio.Event = field(default_factory=asyncio.Event)

    async def known(self, ask: Callable[[], Awaitable[Any]]) -> None:
        """Send ``ask`` until it reaches the webhook: API servers apply new ones after a moment.

        ``ask`` is a dry run of a binding that the policies admit.
        """
        while not self.asked.is_set():
            with suppress(KubeError):
                await ask()
            await asyncio.sleep(PROBE_SECONDS)

    async def answer(self, request: web.Request) -> web.Response:
        asked = await request.json()
        if asked["request"].get("dryRun"):
            self.asked.set()
        else:
            self.came.set()
            await self.go.wait()
        return web.json_response(asked | {"response": _yes(asked["request"]["uid"])})


def _yes(uid: str) -> dict[str, Any]:
    return {"uid": uid, "allowed": True}


@asynccontextmanager
async def delaying(plane: ControlPlane, folder: Path, pod: str) -> AsyncIterator[DelayedBindings]:
    """Delay bindings of pods of that name after every policy has admitted them."""
    delayed = DelayedBindings()
    certificate, key = _certificate(folder)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate, key)
    app = web.Application()
    app.router.add_post("/", delayed.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    port = runner.addresses[0][1]
    hook = _hook(f"https://127.0.0.1:{port}/", certificate.read_bytes(), pod)
    await asyncio.to_thread(plane.ask, "POST", HOOKS, hook)
    try:
        yield delayed
    finally:
        delayed.go.set()
        await asyncio.to_thread(plane.ask, "DELETE", f"{HOOKS}/{NAME}")
        await runner.cleanup()


def _hook(url: str, authority: bytes, pod: str) -> dict[str, Any]:
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["pods/binding"],
    }
    hook = {
        "name": NAME,
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "timeoutSeconds": 30,
        "clientConfig": {"url": url, "caBundle": base64.b64encode(authority).decode()},
        "rules": [rule],
        "matchConditions": [{"name": "this-pod", "expression": f"request.name == '{pod}'"}],
    }
    return {"metadata": {"name": NAME}, "webhooks": [hook]}


def _certificate(folder: Path) -> tuple[Path, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now, day = dt.datetime.now(dt.UTC), dt.timedelta(days=1)
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - day)
        .not_valid_after(now + day)
        .add_extension(address, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    files = folder / "hook.crt", folder / "hook.key"
    files[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    files[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return files
