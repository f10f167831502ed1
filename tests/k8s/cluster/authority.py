"""An authority of one run and the certificate by which the API server is known to kubelets."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID: Final = timedelta(days=2)


@dataclass(frozen=True, slots=True)
class Authority:
    """Files in PEM.

    Attributes:
        certificate: of the authority itself.
        client: of the API server as a client of kubelets.
        client_key: readable by nobody else.
    """

    certificate: Path
    client: Path
    client_key: Path


def make(folder: Path) -> Authority:
    """Make both, valid for two days."""
    key = ec.generate_private_key(ec.SECP256R1())
    own = _named("carrel-tests")
    root = _certificate(own, own, key.public_key()).add_extension(
        x509.BasicConstraints(ca=True, path_length=0), critical=True
    )
    client_key = ec.generate_private_key(ec.SECP256R1())
    client = _certificate(_named("kube-apiserver"), own, client_key.public_key()).add_extension(
        x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
    )
    made = Authority(folder / "authority.crt", folder / "client.crt", folder / "client.key")
    made.certificate.write_bytes(_signed(root, key))
    made.client.write_bytes(_signed(client, key))
    made.client_key.touch(mode=0o600)
    made.client_key.write_bytes(
        client_key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return made


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - VALID)
        .not_valid_after(now + VALID)
    )


def _signed(builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey) -> bytes:
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
