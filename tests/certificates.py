"""Certificates for TLS servers of tests: good ones, and those that nobody should trust."""

from __future__ import annotations

import datetime as dt
import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAY = dt.timedelta(days=1)


@dataclass(frozen=True)
class Authority:
    """A certificate authority, whose own certificate is in `file`."""

    file: Path
    _certificate: x509.Certificate
    _key: ec.EllipticCurvePrivateKey

    @classmethod
    def make(cls, folder: Path) -> Authority:
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = _signed("test authority", key, key, "test authority", is_authority=True)
        file = folder / "ca.pem"
        file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        return cls(file, certificate, key)

    def server(self, folder: Path, host: str = "127.0.0.1", *, days: int = 30) -> ssl.SSLContext:
        """Return the context of a server for this host; with negative days, it has expired."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = _signed(host, key, self._key, "test authority", days=days)
        return _context(folder, certificate, key)


def self_signed(folder: Path, host: str = "127.0.0.1") -> ssl.SSLContext:
    """Return the context of a server that has signed its own certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    return _context(folder, _signed(host, key, key, host), key)


def _signed(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    signing_key: ec.EllipticCurvePrivateKey,
    issuer: str,
    *,
    days: int = 30,
    is_authority: bool = False,
) -> x509.Certificate:
    now = dt.datetime.now(dt.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - 100 * DAY)
        .not_valid_after(now + days * DAY)
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
    )
    if not is_authority:
        names = x509.SubjectAlternativeName([_general(name)])
        builder = builder.add_extension(names, critical=False)
    return builder.sign(signing_key, hashes.SHA256())


def _general(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _context(
    folder: Path, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey
) -> ssl.SSLContext:
    file = folder / "server.pem"
    file.write_bytes(
        certificate.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return context
