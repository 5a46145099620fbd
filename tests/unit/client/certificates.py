"""Certificates of nodes and clients for tests, and contexts of `ssl` with them."""

from __future__ import annotations

import datetime as dt
import ipaddress
import ssl
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from pathlib import Path

DAY = dt.timedelta(days=1)


class Authority:
    """One that signs; its files go into a directory."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        self._directory = directory
        self._name = _called(name)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.file = directory / f"{name}.pem"
        self.file.write_bytes(_pem(self._sign(self._name, self._key.public_key(), (), (-DAY, DAY))))

    def pair(self, *hosts: str, days: tuple[int, int] = (-1, 1), itself: bool = False) -> Path:
        """A certificate and its key in one file, of these hosts, from the one day to the other; signed by `itself`?"""
        key = ec.generate_private_key(ec.SECP256R1())
        signer = key if itself else self._key
        made = self._sign(_called(hosts[0]), key.public_key(), hosts, (days[0] * DAY, days[1] * DAY), signer)
        file = self._directory / f"{made.serial_number}.pem"
        pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        file.write_bytes(key.private_bytes(pem, form, serialization.NoEncryption()) + _pem(made))
        return file

    def client(self, pair: Path | None = None) -> ssl.SSLContext:
        """A context that trusts it, and shows a certificate."""
        context = ssl.create_default_context(cafile=self.file)
        if pair is not None:
            context.load_cert_chain(pair)
        return context

    def node(self, *hosts: str, asks: bool = False, **of_pair: object) -> ssl.SSLContext:
        """A node's, which asks clients for certificates of this authority, too."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.pair(*hosts, **of_pair))
        if asks:
            context.load_verify_locations(self.file)
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def _sign(self, name, key, hosts, holds, signer=None):
        now = dt.datetime.now(dt.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name if signer not in {None, self._key} else self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + holds[0])
            .not_valid_after(now + holds[1])
            .add_extension(x509.BasicConstraints(not hosts, None), critical=True)
        )
        if hosts:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False
            )
        return builder.sign(signer or self._key, hashes.SHA256())


def _called(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
