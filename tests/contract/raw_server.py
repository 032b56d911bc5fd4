"""The raw server of `fairlead.testing` as these suites use it, and TLS for it."""

from __future__ import annotations

import datetime
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from fairlead.testing.api import raw
from fairlead.testing.api.raw import OK, RawConnection, Script, answer_all, send_once

__all__ = ["BODY", "OK", "RawConnection", "RawServer", "Script", "answer_all", "send_once", "tls_contexts"]

BODY = b'{"ok":true}'


class RawServer(raw.RawServer):
    """Its address is a token endpoint's."""

    @property
    def url(self) -> str:
        return f"{super().url}/oauth/token"


def tls_contexts(
    folder: Path, host: str = "localhost", *, valid_for: datetime.timedelta = datetime.timedelta(days=1)
) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server's context with a new certificate for *host*, and a client's that trusts it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=2))
        .not_valid_after(now + valid_for)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = folder / "server.pem"
    pem.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(pem)
    return server, ssl.create_default_context(cafile=pem)
