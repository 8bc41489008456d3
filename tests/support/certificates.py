"""Self-signed certificates for tests."""

from __future__ import annotations

import datetime
import ipaddress
import socket
import ssl
from collections.abc import Iterable
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

_NO_PASSWORD = serialization.NoEncryption()


def write_certificate(
    folder: Path, days: float = 365, password: bytes | None = None, names: Iterable[str] = ()
) -> tuple[Path, Path]:
    """Writes a certificate for 127.0.0.1 and these names, and its key.

    It expires in so many days.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    encryption = serialization.BestAvailableEncryption(password) if password else _NO_PASSWORD
    cert_file, key_file = folder / "cert.pem", folder / "key.pem"
    _replace(cert_file, _sign(key, days, names).public_bytes(serialization.Encoding.PEM))
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    _replace(key_file, key.private_bytes(pem, pkcs8, encryption))
    return cert_file, key_file


def _replace(path: Path, text: bytes) -> None:
    """Replaces a file as programs that renew certificates do."""
    new = path.with_suffix(".new")
    new.write_bytes(text)
    new.replace(path)


def _sign(key: ec.EllipticCurvePrivateKey, days: float, names: Iterable[str]) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "gleanery test")])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    subjects = x509.SubjectAlternativeName([address, *map(x509.DNSName, names)])
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=30))
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(subjects, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )


def serial_number(path: Path) -> int:
    return x509.load_pem_x509_certificate(path.read_bytes()).serial_number


def unverified_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def connect_tls(port: int) -> ssl.SSLSocket:
    """Connects to loopback, and accepts any certificate."""
    plain = socket.create_connection(("127.0.0.1", port), timeout=60)
    return unverified_context().wrap_socket(plain)


def served_serial_number(port: int) -> int:
    """Serial number of the certificate that a new connection gets."""
    with connect_tls(port) as connection:
        certificate = connection.getpeercert(binary_form=True)
    assert certificate is not None
    return x509.load_der_x509_certificate(certificate).serial_number
