"""RESP gets that other nodes answer: asked together, and answered in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.serving.asker import AWAY, HERE, RECORDS, Asker
from tests.unit.serving.test_resp import array

if TYPE_CHECKING:
    from collections.abc import Iterable


def bulk(value: bytes) -> bytes:
    return b"$%d\r\n%s\r\n" % (len(value), value)


class Client:
    """A RESP client of a core that asks other nodes."""

    def __init__(self, asker: Asker) -> None:
        self.driver = asker.client.driver
        handle = self.driver.open(1, listener=1)
        assert handle is not None
        self.handle = handle

    def send(self, data: bytes) -> list[tuple[int, int, bytes | None, bytes]]:
        return self.driver.feed(self.handle, data, 1)

    def received(self) -> bytes:
        return self.driver.take_output(self.handle, 1 << 30, 1)


def gets(keys: Iterable[bytes]) -> bytes:
    return b"".join(array(b"GET", b"db:" + key) for key in keys)


KEYS = [key for pair in zip(AWAY[:6], HERE[:6], strict=True) for key in pair]


@given(st.permutations(range(6)))
def test_answers_come_in_order_whoever_is_quick(tmp_path_factory, order):
    """All remote keys are asked for at once; local answers wait for earlier ones."""
    asker = Asker(tmp_path_factory.mktemp("resp"))
    client, (link,) = Client(asker), asker.links
    assert client.send(gets(KEYS)) == []
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
        assert said == b"".join(bulk(RECORDS[key]) for key in KEYS[:ready])
    assert said.count(b"$") == len(KEYS)
    assert asker.count("held_bytes") == asker.count("in_flight") == 0


@pytest.mark.parametrize("refused", [False, True])
def test_many_keys_of_which_some_are_elsewhere(tmp_path, refused):
    """MGET over local keys, remote keys and a table has one answer, or the error of a part."""
    asker = Asker(tmp_path)
    client, (link,) = Client(asker), asker.links
    words = [b"MGET", b"db:" + HERE[0], b"db:" + AWAY[0], b"carts:a", b"carts:b", b"db:" + AWAY[1]]
    ((_, msgid, method, _),) = client.send(array(*words) + array(b"PING"))
    assert method == b"get_many"
    for _, wire, _, (_, keys, _) in link.requests():
        link.say(response(wire, [[RECORDS[key] for key in keys], "v1"]))
    assert client.received() == b""
    answer = (
        response(msgid, None, ["CORRUPT", "two\r\nlines", {}]) if refused else response(msgid, [[None, b"2"], b"t"])
    )
    client.driver.reply(client.handle, msgid, answer)
    values = [RECORDS[HERE[0]], RECORDS[AWAY[0]], None, b"2", RECORDS[AWAY[1]]]
    said = b"*5\r\n" + b"".join(b"$-1\r\n" if value is None else bulk(value) for value in values)
    assert client.received() == (b"-CORRUPT two  lines\r\n" if refused else said) + b"+PONG\r\n"


def response(msgid: int, result: object, error: object = None) -> bytes:
    packed: bytes = msgpack.packb([1, msgid, error, result])
    return packed


def test_an_owner_that_pauses_may_answer(tmp_path):
    """A command has the default of `timeout_ms`, a second."""
    asker = Asker(tmp_path)
    client, (link,) = Client(asker), asker.links
    assert client.send(gets([AWAY[0]])) == []
    assert asker.wait(999) == []
    link.answer(link.asked(), b"late")
    assert client.received() == bulk(b"late")


def test_what_nobody_answers(tmp_path):
    """Python answers with the reason; later answers wait for it."""
    asker = Asker(tmp_path)
    client = Client(asker)
    assert client.send(gets([AWAY[0], HERE[0]])) == []
    handed = asker.wait(1000)
    assert [(msgid, method) for _, msgid, method, _ in handed] == [(0, None)]
    assert client.received() == b""
    client.driver.reply(client.handle, 0, response(0, None, ["UNAVAILABLE", "nobody answers", {}]))
    assert client.received() == b"-UNAVAILABLE nobody answers\r\n" + bulk(RECORDS[HERE[0]])


def test_who_is_gone_is_answered_nothing(tmp_path):
    """Forwarded reads and waiting answers of the closed client are dropped."""
    asker = Asker(tmp_path)
    client, (link,) = Client(asker), asker.links
    client.send(gets(KEYS))
    (first, *_) = link.requests()
    client.driver.close(client.handle)
    link.answer(first[1], b"late")
    assert asker.count("held_bytes") == asker.count("in_flight") == 0
    assert asker.count("forward_answers_late") == 1


def test_gets_that_have_to_wait_keep_their_order(tmp_path):
    """With few requests in flight a pipeline is read in parts, and each request is answered once."""
    asker = Asker(tmp_path, max_in_flight=2)
    client, (link,) = Client(asker), asker.links
    assert client.send(gets([HERE[0], *KEYS])) == []
    said = b""
    for _ in range(20):
        for _, msgid, _, params in link.requests():
            link.answer(msgid, RECORDS[params[1]])
        client.driver.run(1)
        said += client.received()
    assert said == b"".join(bulk(RECORDS[key]) for key in [HERE[0], *KEYS])
