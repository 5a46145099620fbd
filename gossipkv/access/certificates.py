"""A private certificate authority, and the certificates of nodes and clients that it signs.

    authority   10 years; signs certificates, and no further authority
    node        a year; serves and asks; has the hosts by which it is reached, and its uuid as `urn:uuid:…`
    client      a year; asks, and cannot serve; its name is that of a user

One authority may sign both kinds: only a node's certificate has a uuid.

Keys are ECDSA on P-256, which every library supports, and whose handshake costs a node a tenth of RSA's. There is no
revocation list: remove a user from the users file, and replace an authority if its key is lost.

Importing this module loads `cryptography`, which the extra `secure` installs.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from gossipkv.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from uuid import UUID

AUTHORITY_DAYS: Final = 3650
CERTIFICATE_DAYS: Final = 365
# A machine whose clock lags accepts a new certificate.
_BEFORE: Final = timedelta(hours=1)


@final
@dataclass(frozen=True, slots=True)
class Signed:
    """A certificate and its key, as PEM, and its expiry."""

    certificate: str
    key: str = field(repr=False)
    ends: datetime


@final
@dataclass(frozen=True, slots=True)
class Subject:
    """The subject of a certificate.

    Attributes:
        hosts: Names and addresses by which a node is reached; empty for a client.
        uuid: The node's, by which others know it; None for a client.
    """

    name: str
    hosts: Sequence[str] = ()
    uuid: UUID | None = None


def new_authority(name: str, now: datetime, days: int = AUTHORITY_DAYS) -> Signed:
    """Make a self-signed authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    unsigned = _begun(name, key, now, now + timedelta(days=days), signs=True)
    return _signed(unsigned.issuer_name(_called(name)), key, key)


def new_certificate(
    authority: tuple[str, str], subject: Subject, now: datetime, days: int = CERTIFICATE_DAYS
) -> Signed:
    """Make a certificate signed by the authority, which is its certificate and key as PEM; it ends no later than that.

    Raises:
        ConfigError: the authority is no certificate with its key, or has expired.
    """
    issuer, signer = _read(authority, now)
    key = ec.generate_private_key(ec.SECP256R1())
    purposes = [ExtendedKeyUsageOID.CLIENT_AUTH]
    end = min(now + timedelta(days=days), issuer.not_valid_after_utc)
    unsigned = (
        _begun(subject.name, key, now, end, signs=False)
        .issuer_name(issuer.subject)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )
    if names := [*_names(subject)]:
        unsigned = unsigned.add_extension(x509.SubjectAlternativeName(names), critical=False)
        purposes.append(ExtendedKeyUsageOID.SERVER_AUTH)
    unsigned = unsigned.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
    return _signed(unsigned, key, signer)


def _names(subject: Subject) -> Iterator[x509.GeneralName]:
    for host in subject.hosts:
        try:
            yield x509.IPAddress(ipaddress.ip_address(host))
        except ValueError:
            yield x509.DNSName(host)
    if subject.uuid is not None:
        yield x509.UniformResourceIdentifier(subject.uuid.urn)


def _read(authority: tuple[str, str], now: datetime) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    wrong = ConfigError("the authority is not a certificate with its key, as `gossipkv certificates new` makes them")
    try:
        issuer = x509.load_pem_x509_certificate(authority[0].encode())
        signer = serialization.load_pem_private_key(authority[1].encode(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise wrong from None
    if not isinstance(signer, ec.EllipticCurvePrivateKey) or issuer.public_key() != signer.public_key():
        raise wrong
    if issuer.not_valid_after_utc <= now:
        raise ConfigError(f"the authority expired at {issuer.not_valid_after_utc:%Y-%m-%d %H:%M} UTC; make a new one")
    return issuer, signer


def _begun(
    name: str, key: ec.EllipticCurvePrivateKey, now: datetime, end: datetime, *, signs: bool
) -> x509.CertificateBuilder:
    """Return the common part of all certificates; `signs`: it may sign certificates, but no other authority."""
    usage = x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    return (
        x509.CertificateBuilder()
        .subject_name(_called(name))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BEFORE)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.BasicConstraints(ca=signs, path_length=0 if signs else None), critical=True)
        .add_extension(usage, critical=True)
    )


def _called(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _signed(
    unsigned: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey, signer: ec.EllipticCurvePrivateKey
) -> Signed:
    certificate = unsigned.sign(signer, hashes.SHA256())
    pem, no_password = serialization.Encoding.PEM, serialization.NoEncryption()
    return Signed(
        certificate.public_bytes(pem).decode(),
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, no_password).decode(),
        certificate.not_valid_after_utc,
    )
