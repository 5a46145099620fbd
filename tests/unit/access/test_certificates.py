"""Certificates of an authority are accepted by TLS for their own purpose, and for no other."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat

from gossipkv.access.certificates import Signed, Subject, new_authority, new_certificate
from gossipkv.errors import ConfigError

NOW = datetime.now(UTC)
UUID_OF_NODE = UUID("6fa459ea-ee8a-3ca4-894e-db77e160355e")
AUTHORITY = new_authority("ours", NOW)
PAIR = (AUTHORITY.certificate, AUTHORITY.key)
OTHER = new_authority("ours", NOW)  # It has the same name.
NODE = new_certificate(PAIR, Subject("n1", ("10.0.0.1", "::1", "kv.example.org"), UUID_OF_NODE), NOW)
CLIENT = new_certificate(PAIR, Subject("ana"), NOW)


def context(tmp_path, purpose, authority, shown: Signed | None):
    """Return the context of one side, as strict as Python can be: the trusted authority, and the shown certificate."""
    made = ssl.create_default_context(purpose, cadata=authority.certificate)
    made.verify_flags |= ssl.VERIFY_X509_STRICT
    made.verify_mode = ssl.CERT_REQUIRED
    if shown is not None:
        path = tmp_path / "shown.pem"
        path.write_text(shown.certificate + shown.key)
        made.load_cert_chain(path)
    return made


def meet(tmp_path, server, client, host, *, trusted_by_server=AUTHORITY, trusted_by_client=AUTHORITY):
    """Return the certificates that server and client see of each other after the handshake."""
    into_server, into_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    serving = context(tmp_path, ssl.Purpose.CLIENT_AUTH, trusted_by_server, server)
    asking = context(tmp_path, ssl.Purpose.SERVER_AUTH, trusted_by_client, client)
    sides = [
        serving.wrap_bio(into_server, into_client, server_side=True),
        asking.wrap_bio(into_client, into_server, server_hostname=host),
    ]
    waiting = [*sides]
    for _ in range(6):
        for side in [*waiting]:
            try:
                side.do_handshake()
                waiting.remove(side)
            except ssl.SSLWantReadError:
                pass
    assert not waiting
    return tuple(side.getpeercert() for side in sides)


def name_of(seen):
    """Return the common name of a certificate in the form of `ssl`."""
    return dict(pair for part in seen["subject"] for pair in part)["commonName"]


@pytest.mark.parametrize("host", ["10.0.0.1", "::1", "kv.example.org"])
def test_a_node_is_reached_by_its_hosts(tmp_path, host):
    """The node knows its client by name."""
    client, node = meet(tmp_path, NODE, CLIENT, host)
    assert (name_of(client), name_of(node)) == ("ana", "n1")
    assert ("URI", UUID_OF_NODE.urn) in node["subjectAltName"]
    assert "subjectAltName" not in client


def test_nodes_know_each_other(tmp_path):
    """A node's certificate is valid for a client as well, with its uuid."""
    seen, _ = meet(tmp_path, NODE, NODE, "10.0.0.1")
    assert ("URI", UUID_OF_NODE.urn) in seen["subjectAltName"]


REFUSED = [
    ({"host": "10.0.0.2"}, "IP address mismatch"),
    ({"host": "n1"}, "Hostname mismatch"),
    ({"server": CLIENT}, "unsuitable certificate purpose"),
    ({"trusted_by_client": OTHER}, "certificate verify failed"),
    ({"trusted_by_server": OTHER}, "certificate verify failed"),
    ({"client": new_certificate((OTHER.certificate, OTHER.key), Subject("ana"), NOW)}, "certificate verify failed"),
    ({"client": new_certificate(PAIR, Subject("ana"), NOW - timedelta(days=400))}, "certificate has expired"),
    ({"client": new_certificate(PAIR, Subject("ana"), NOW + timedelta(hours=2))}, "not yet valid"),
    ({"client": None}, "peer did not return a certificate"),
]


@pytest.mark.parametrize(("differs", "told"), REFUSED)
def test_what_tls_refuses(tmp_path, differs, told):
    """Another host, a namesake authority, a serving client, an expired and an early certificate are refused."""
    try:
        said = str(meet(tmp_path, **{"server": NODE, "client": CLIENT, "host": "10.0.0.1", **differs}))
    except ssl.SSLError as refused:
        said = str(refused)
    assert told in said


def test_what_an_authority_signs_is_no_authority():
    """An authority signs certificates, which sign nothing themselves."""
    constraints = x509.load_pem_x509_certificate(AUTHORITY.certificate.encode()).extensions.get_extension_for_class(
        x509.BasicConstraints
    )
    assert (constraints.critical, constraints.value.ca, constraints.value.path_length) == (True, True, 0)


def test_how_long_they_hold():
    """Authorities hold ten years and certificates one, from an hour ago, and no longer than the authority."""
    assert AUTHORITY.ends == (NOW + timedelta(days=3650)).replace(microsecond=0)
    assert CLIENT.ends == (NOW + timedelta(days=365)).replace(microsecond=0)
    begun = x509.load_pem_x509_certificate(CLIENT.certificate.encode()).not_valid_before_utc
    assert begun == (NOW - timedelta(hours=1)).replace(microsecond=0)
    assert new_certificate(PAIR, Subject("ana"), NOW, days=36_500).ends == AUTHORITY.ends


def key_of(password=None):
    """Return a key of another kind, or one with a password."""
    hidden = NoEncryption() if password is None else BestAvailableEncryption(password)
    return ed25519.Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, hidden).decode()


NO_AUTHORITIES = [
    ("", ""),
    (AUTHORITY.key, AUTHORITY.certificate),
    (AUTHORITY.certificate[:300], AUTHORITY.key),
    (AUTHORITY.certificate, key_of()),
    (AUTHORITY.certificate, key_of(b"word")),
    (AUTHORITY.certificate, OTHER.key),
]


@pytest.mark.parametrize("authority", NO_AUTHORITIES)
def test_what_is_no_authority(authority):
    """The error is one sentence without any part of a key."""
    with pytest.raises(ConfigError, match="not a certificate with its key") as refused:
        new_certificate(authority, Subject("ana"), NOW)
    assert "PRIVATE" not in str(refused.value)


def test_an_authority_that_has_ended_signs_nothing():
    """The error has the end."""
    with pytest.raises(ConfigError, match=f"expired at {AUTHORITY.ends:%Y-%m-%d}"):
        new_certificate(PAIR, Subject("ana"), AUTHORITY.ends)


def test_no_text_has_the_key():
    """A signed certificate may appear in a traceback."""
    assert "PRIVATE" not in repr(CLIENT)
    assert "CERTIFICATE" in repr(CLIENT)
