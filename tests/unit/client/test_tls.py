"""TLS of a connection without I/O, against OpenSSL's server side."""

from __future__ import annotations

import random
import ssl

import pytest

from gossipkv.client.tls import ClientTls
from tests.unit.client.certificates import Authority

HOST = "node.example"
SAID = [b"", b"a", b"b" * 16_384, b"c" * 100_000]


class Node:
    """The server side."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._end = context.wrap_bio(self._in, self._out, server_side=True)
        self.read = b""

    def take(self, data: bytes) -> bytes:
        self._in.write(data)
        try:
            self._end.do_handshake()
            while piece := self._end.read(65_536):
                self.read += piece
        except ssl.SSLWantReadError:
            pass
        return self._out.read()

    def say(self, data: bytes) -> bytes:
        while data:
            data = data[self._end.write(data) :]
        return self._out.read()

    def end(self) -> bytes:
        with pytest.raises(ssl.SSLWantReadError):
            self._end.unwrap()
        return self._out.read()


@pytest.fixture(scope="module")
def contexts(tmp_path_factory):
    """Return the contexts of a client and its node."""
    authority = Authority(tmp_path_factory.mktemp("certificates"))
    return authority.client(), authority.node(HOST)


@pytest.fixture(params=[ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def met(request, contexts):
    """Return two ends that have shaken hands byte by byte."""
    contexts[1].maximum_version = request.param
    tls, node = ClientTls(contexts[0], HOST), Node(contexts[1])
    ahead = node.take(tls.shake(None))
    while not tls.is_shaken:
        ahead, now = ahead[1:], ahead[:1]
        ahead += node.take(tls.shake(now))
    assert tls.open(ahead) == b""
    return tls, node


def test_what_is_said_arrives(met):
    """Data arrives both ways over any number of records, cut anywhere."""
    tls, node = met
    node.take(b"".join(tls.seal(said) for said in SAID))
    assert node.read == b"".join(SAID)
    records = b"".join(node.say(said) for said in SAID)
    draw = random.Random(1)
    read = b""
    while records:
        size = draw.choice([1, 5, 100, 20_000])
        read, records = read + tls.open(records[:size]), records[size:]
    assert read == b"".join(SAID)
    assert not tls.has_ended


def test_an_end_is_told_and_what_came_before_it_counts(met):
    """A node's close_notify ends the session after earlier data, and the client's does so for the node."""
    tls, node = met
    assert tls.open(node.say(b"answer") + node.end()) == b"answer"
    assert tls.has_ended
    with pytest.raises(ssl.SSLZeroReturnError):
        node.take(tls.farewell())


def test_what_was_changed_on_its_way_is_never_read(met):
    """A changed bit is detected: earlier records are read, and later ones are neither read nor written."""
    tls, node = met
    good, bad = node.say(b"good"), bytearray(node.say(b"bad"))
    bad[random.Random(2).randrange(5, len(bad))] ^= 1
    assert tls.open(good + bad) == b"good"
    assert tls.has_ended
    with pytest.raises(ssl.SSLError, match="bad record mac"):
        node.take(tls.seal(b"request"))
    assert node.read == b""


@pytest.mark.parametrize("name", ["", ".example", "a" * 64 + ".example"])
def test_a_name_that_no_certificate_has(contexts, name):
    """The name is refused before anything is sent."""
    with pytest.raises(OSError, match="the host name cannot stand in a certificate"):
        ClientTls(contexts[0], name)


def test_the_zone_of_an_address_is_not_looked_for(contexts):
    """The zone is this machine's name for a network, and no part of a certificate."""
    assert ClientTls(contexts[0], "fe80::1%eth0").shake(None)
