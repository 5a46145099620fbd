"""A TLS loop that is stepped by hand, and clients that are stepped with it."""

from __future__ import annotations

import contextlib
import ssl
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from gossipkv.access.certificates import Subject, new_authority, new_certificate
from gossipkv.serving._transport import Tls
from tests.unit.serving.test_serving_slow import Served

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
    from pathlib import Path
    from uuid import UUID

ALL = 0b111  # All listeners.
NOW = datetime.now(UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
Key = ec.EllipticCurvePrivateKey


def nobody(_name: str) -> int:
    """Return user 0 for any certificate name."""
    return 0


@dataclass(frozen=True)
class Pair:
    """The paths of a certificate and its key."""

    certificate: Path
    key: Path


class Authority:
    """An authority that signs certificates and writes them into a directory."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        self.directory = directory
        self.signed = new_authority(name, NOW)
        self.path = directory / f"{name}.pem"
        self.path.write_text(self.signed.certificate)

    def pair(self, name: str, *hosts: str, began: datetime = NOW, uuid: UUID | None = None) -> Pair:
        """Return a certificate for a node with these hosts or uuid, or for a client, for 30 days."""
        signed = new_certificate((self.signed.certificate, self.signed.key), Subject(name, hosts, uuid), began, 30)
        pair = Pair(self.directory / f"{name}.pem", self.directory / f"{name}.key")
        pair.certificate.write_text(signed.certificate)
        pair.key.write_text(signed.key)
        pair.key.chmod(0o600)
        return pair

    def trusting(self, shown: Pair | None = None, *, version: ssl.TLSVersion | None = None) -> ssl.SSLContext:
        """Return a client's context that trusts this authority, and shows a certificate."""
        context = ssl.create_default_context(cafile=self.path)
        if shown is not None:
            context.load_cert_chain(shown.certificate, shown.key)
        if version is not None:
            context.minimum_version = context.maximum_version = version
        return context


class Intermediate(Authority):
    """An authority below a root, which alone is in `path`; its clients show the intermediate certificate."""

    def __init__(self, directory: Path, name: str) -> None:
        super().__init__(directory, name)
        root, own = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
        self.path.write_text(pem_of(ca_of(f"{name} root", root, f"{name} root", root)))
        key = own.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
        self.signed = replace(self.signed, certificate=pem_of(ca_of(name, own, f"{name} root", root)), key=key)

    def pair(self, name: str, *hosts: str, began: datetime = NOW, uuid: UUID | None = None) -> Pair:
        pair = super().pair(name, *hosts, began=began, uuid=uuid)
        pair.certificate.write_text(pair.certificate.read_text() + self.signed.certificate)
        return pair


def ca_of(name: str, key: Key, issuer: str, signer: Key) -> x509.Certificate:
    """Return a certificate of an authority that may have subordinates."""
    called, by = (x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, each)]) for each in (name, issuer))
    builder = x509.CertificateBuilder(by, called, key.public_key(), x509.random_serial_number(), NOW - HOUR, NOW + DAY)
    return builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True).sign(signer, SHA256())


def pem_of(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(Encoding.PEM).decode()


class Client:
    """A TLS client over a non-blocking socket; `advance` does all that is possible now."""

    def __init__(self, socket: socket.socket, context: ssl.SSLContext, *, ticket: ssl.SSLSession | None = None) -> None:
        self.socket = socket
        self.into, self.out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.into, self.out, server_hostname="localhost", session=ticket)
        self.received = bytearray()
        self.is_shaken = self.has_ended = False
        self.unsent = bytearray()

    def send(self, data: bytes) -> None:
        """Send what the socket takes now; `advance` sends the rest.  The handshake must be complete."""
        self.tls.write(data)
        self.flush()

    def advance(self) -> None:
        """Send waiting bytes and receive.

        Raises ssl.SSLError if either side refuses.
        """
        self.flush()
        self.hear()
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
            self.flush()

    def hear(self) -> None:
        with contextlib.suppress(BlockingIOError):
            if data := self.socket.recv(1 << 16):
                self.into.write(data)
            else:
                self.into.write_eof()

    def flush(self) -> None:
        self.unsent += self.out.read()
        with contextlib.suppress(BlockingIOError):
            del self.unsent[: self.socket.send(self.unsent)]


class Secured(Served):
    """A loop that speaks TLS at each listener, with a certificate for localhost."""

    def __init__(self, directory: Path, **limits: int) -> None:
        super().__init__(directory, **limits)
        self.authority = Authority(directory)
        self.pair = self.authority.pair("node", "localhost")
        self.use(self.pair)

    def use(
        self,
        pair: Pair,
        clients: Path | None = None,
        peers: Path | None = None,
        *,
        user_named: Callable[[str], int] = nobody,
    ) -> None:
        """Show this certificate to new connections, and map their certificates to users."""
        self.loop.use_tls(Tls(pair.certificate, pair.key, clients, peers, listeners=ALL), user_named)

    def meet(
        self,
        context: ssl.SSLContext | None = None,
        *,
        to: tuple[str, int] | None = None,
        receive_buffer: int | None = None,
        ticket: ssl.SSLSession | None = None,
    ) -> Client:
        client = Client(
            self.connect(to=to, receive_buffer=receive_buffer), context or self.authority.trusting(), ticket=ticket
        )
        self.advance(client, lambda: client.is_shaken)
        return client

    def advance(self, client: Client, done: object) -> None:
        def is_done() -> bool:
            client.advance()
            return done()

        self.until(is_done)

    def take(self, client: Client, size: int) -> bytes:
        """Return the next bytes that the client receives."""
        self.advance(client, lambda: len(client.received) >= size)
        taken = bytes(client.received[:size])
        del client.received[:size]
        return taken
