"""HTTP gets that other nodes answer: asked together, answered in order, with the node's name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.oracle import http
from tests.unit.serving.asker import AWAY, HERE, RECORDS, Asker
from tests.unit.serving.http_world import DATE, DATE_S

if TYPE_CHECKING:
    from collections.abc import Sequence

NOW_MS, HTTP = DATE_S * 1000, 2
KEYS = [key for pair in zip(AWAY[:6], HERE[:6], strict=True) for key in pair]
STRANGE = b"POST / HTTP/1.1\r\n\r\n"


class Client:
    """An HTTP client of a core that asks other nodes."""

    def __init__(self, asker: Asker) -> None:
        self.driver = asker.client.driver
        asker.client.now_ms = NOW_MS
        handle = self.driver.open(NOW_MS, listener=HTTP)
        assert handle is not None
        self.handle = handle

    def send(self, data: bytes) -> list[tuple[int, int, bytes | None, bytes]]:
        return self.driver.feed(self.handle, data, NOW_MS)

    def received(self) -> bytes:
        return self.driver.take_output(self.handle, 1 << 30, NOW_MS)


def gets(keys: Sequence[bytes], last: bytes = b"") -> bytes:
    """Return a pipeline; `last` has headers of the last request."""
    requests = [b"GET /db/%b HTTP/1.1\r\nHost: h\r\n" % key for key in keys]
    return b"\r\n".join([*requests, b""])[:-2] + last + b"\r\n"


def answers(keys: Sequence[bytes], *, closes: bool = False) -> bytes:
    plain = [http.Plain(b"GET", b"db", key, closes and key == keys[-1], None, None) for key in keys]
    found = (http.Found(RECORDS[key], "v1", other_node="peer0:1" if key in AWAY else None) for key in keys)
    return b"".join(http.answer(*each, date=DATE) for each in zip(plain, found, strict=True))


@given(st.permutations(range(6)), st.booleans())
def test_answers_come_in_order_whoever_is_quick(tmp_path_factory, order, closes):
    """All remote keys are asked for at once; local answers wait for earlier ones."""
    asker = Asker(tmp_path_factory.mktemp("http"))
    client, (link,) = Client(asker), asker.links
    assert client.send(gets(KEYS, b"Connection: close\r\n" if closes else b"")) == []
    asked = link.requests()
    assert [params[1] for _, _, _, params in asked] == AWAY[:6]
    answered: set[bytes] = set(HERE)
    said = b""
    for place in order:
        _, msgid, _, params = asked[place]
        link.answer(msgid, RECORDS[params[1]])
        answered.add(params[1])
        said += client.received()
        ready = next((at for at, key in enumerate(KEYS) if key not in answered), len(KEYS))
        assert answers(KEYS, closes=closes).startswith(said)
        assert said.count(b"200 OK") == ready
    assert said == answers(KEYS, closes=closes)
    assert client.driver.should_close(client.handle) is closes
    assert asker.count("held_bytes") == asker.count("in_flight") == 0


def test_an_owner_that_pauses_may_answer(tmp_path):
    """A request has the default of `timeout_ms`, a second."""
    asker = Asker(tmp_path)
    client, (link,) = Client(asker), asker.links
    assert client.send(gets([AWAY[0]])) == []
    assert asker.wait(999) == []
    link.answer(link.asked(), RECORDS[AWAY[0]])
    assert client.received() == answers([AWAY[0]])


def test_what_nobody_answers(tmp_path):
    """Python answers with the reason; later answers wait for it."""
    asker = Asker(tmp_path)
    client = Client(asker)
    assert client.send(gets([AWAY[0], HERE[0]])) == []
    handed = asker.wait(1000)
    assert [(msgid, method) for _, msgid, method, _ in handed] == [(0, None)]
    assert client.received() == b""
    client.driver.reply(client.handle, 0, msgpack.packb([1, 0, ["UNAVAILABLE", "nobody answers", {}], None]))
    plain = http.Plain(b"GET", b"db", AWAY[0], closes=False, part=None, tag=None)
    refused = http.answer(plain, http.Failed("UNAVAILABLE", "nobody answers"), date=DATE)
    assert client.received() == refused + answers([HERE[0]])


def test_who_is_gone_is_answered_nothing(tmp_path):
    """Forwarded reads and waiting answers of the closed client are dropped."""
    asker = Asker(tmp_path)
    client, (link,) = Client(asker), asker.links
    client.send(gets(KEYS) + STRANGE)
    (first, *_) = link.requests()
    client.driver.close(client.handle)
    link.answer(first[1], b"late")
    assert asker.count("held_bytes") == asker.count("in_flight") == 0
    assert asker.count("forward_answers_late") == 1


@pytest.mark.parametrize("last", [b"", b"Connection: close\r\n"])
def test_gets_that_have_to_wait_keep_their_order(tmp_path, last):
    """With few requests in flight a pipeline is read in parts, and each request is answered once."""
    asker = Asker(tmp_path, max_in_flight=2)
    client, (link,) = Client(asker), asker.links
    keys = [HERE[0], *KEYS, AWAY[6]]
    assert client.send(gets(keys, last)) == []
    said = b""
    for _ in range(20):
        for _, msgid, _, params in link.requests():
            link.answer(msgid, RECORDS[params[1]])
        client.driver.run(NOW_MS)
        said += client.received()
    assert said == answers(keys, closes=last != b"")
    assert client.driver.should_close(client.handle) is (last != b"")
    assert asker.count("held_bytes") == asker.count("in_flight") == 0
