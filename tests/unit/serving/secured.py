"""What tests of TLS share: an authority, what it signs, and a client that is stepped together with a loop."""

from __future__ import annotations

import contextlib
import ipaddress
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    import socket
    from pathlib import Path

PEM = serialization.Encoding.PEM
PLAINLY = serialization.NoEncryption()
ALL = 0b111  # Every listener.


@dataclass
class Authority:
    """Signs certificates, and writes them into a directory."""

    directory: Path
    name: str = "authority"
    issuer: Authority | None = None  # None: itself

    def __post_init__(self) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.certificate = self._sign(self.name, self.key, is_authority=True)
        self.path = self.directory / f"{self.name}.pem"
        self.path.write_bytes(self.certificate.public_bytes(PEM))

    def pair(self, name: str, *, days: float = 30, passphrase: bytes | None = None) -> tuple[Path, Path]:
        """Where the certificate of that name and its key are; the host is localhost."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = (self.directory / f"{name}.pem", self.directory / f"{name}.key")
        certificate[0].write_bytes(self._sign(name, key, days=days).public_bytes(PEM))
        seal = PLAINLY if passphrase is None else serialization.BestAvailableEncryption(passphrase)
        certificate[1].write_bytes(key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, seal))
        return certificate

    def _sign(
        self, name: str, key: ec.EllipticCurvePrivateKey, *, days: float = 30, is_authority: bool = False
    ) -> x509.Certificate:
        now, by = datetime.now(UTC), (self.issuer or self) if is_authority else self
        hosts = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        return (
            x509.CertificateBuilder()
            .subject_name(_called(name))
            .issuer_name(_called(by.name))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=90))
            .not_valid_after(now + timedelta(days=days))
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName(hosts), critical=False)
            .sign(by.key, hashes.SHA256())
        )

    def trusting(self, *shown: Path, version: ssl.TLSVersion | None = None) -> ssl.SSLContext:
        """A client's context that trusts this authority, and shows that certificate and key."""
        context = ssl.create_default_context(cafile=self.path)
        if shown:
            context.load_cert_chain(*shown)
        if version is not None:
            context.minimum_version = context.maximum_version = version
        return context


def _called(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


class Client:
    """A client of TLS over a socket that does not block; `advance` does what can be done."""

    def __init__(
        self, socket: socket.socket, context: ssl.SSLContext, *, host: str = "localhost", ticket: object = None
    ) -> None:
        self.socket = socket
        self.into, self.out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.into, self.out, server_hostname=host, session=ticket)
        self.received = bytearray()
        self.is_shaken = self.has_ended = False
        self._unsent = bytearray()

    def send(self, data: bytes) -> None:
        """Send it, as far as the socket takes it now; the rest with `advance`.  Requires: it is shaken."""
        self.tls.write(data)
        self.advance()

    def advance(self) -> None:
        """Send what waits and hear what has come.  Raises ssl.SSLError: the other side, or this one, refuses."""
        try:
            data = self.socket.recv(1 << 16)
        except BlockingIOError:
            pass
        else:
            self.into.write(data) if data else self.into.write_eof()
        try:
            if not self.is_shaken:
                self.tls.do_handshake()
                self.is_shaken = True
            while data := self.tls.read(1 << 16):
                self.received += data
            self.has_ended = True
        except ssl.SSLWantReadError:
            pass
        finally:
            self._flush()

    def _flush(self) -> None:
        self._unsent += self.out.read()
        with contextlib.suppress(BlockingIOError):
            del self._unsent[: self.socket.send(self._unsent)]
