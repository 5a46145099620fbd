"""Each request runs as the user that its connection has at that point of the stream, however much is sent at once."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgpack
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gossipkv.wire import rpc
from tests.unit.serving.driven import make_core, one_database
from tests.unit.serving.test_resp import array
from tests.world._world import Driver

if TYPE_CHECKING:
    from pathlib import Path

    from gossipkv.serving.published import Published

NOBODY, READER, OTHER = 0, 2, 3
MAY_READ = [b"\0", None, b"\1", b"\0"]  # By user: the bitmap of readable databases, of which `db` is the first.
LISTENERS = {"messages": 0, "resp": 1}


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Published:
    directory: Path = tmp_path_factory.mktemp("users")
    return one_database(directory, {b"k": b"v"})


@dataclass
class Op:
    """A request, and the result that names its user: from the core, or from Python."""

    kind: str  # get, who, auth, hello or reset
    user: int = NOBODY  # The user of the token.

    def encode(self, dialect: str, msgid: int) -> bytes:
        if dialect == "messages":
            params = {"get": ["db", b"k"], "who": [], "auth": [b"%d" % self.user], "hello": [{"user": self.user}]}
            return rpc.request(msgid, self.kind, params[self.kind])
        words = {
            "get": [b"GET", b"db:k"],
            "who": [b"CLIENT", b"GETNAME"],
            "auth": [b"AUTH", b"%d" % self.user],
            "hello": [b"HELLO", b"2", b"AUTH", b"default", b"%d" % self.user],
            "reset": [b"RESET"],
        }
        return array(*words[self.kind])


OPS = st.one_of(
    st.sampled_from([Op("get"), Op("who"), Op("reset")]),
    st.builds(Op, st.sampled_from(["auth", "hello"]), st.sampled_from([READER, OTHER])),
)


def expected(ops: list[Op], dialect: str) -> list[bytes]:
    """Return each result: the value, or the user of the request."""
    told, user = [], NOBODY
    for op in ops:
        if op.kind == "reset":
            user = NOBODY
            told.append(b"RESET")
        elif op.kind in {"auth", "hello"}:
            told.append(b"%d" % user)  # The request itself runs as the previous user.
            user = op.user
        else:
            told.append(b"v" if op.kind == "get" and user == READER else b"%d" % user)
    return told


class Stream:
    """A client that sends everything at once, and Python that answers in any order."""

    def __init__(self, published: Published, dialect: str, seed: int) -> None:
        core = make_core(max_in_flight=8)
        core.publish(published.table())
        core.let_read(MAY_READ)
        self.driver = Driver(core)
        handle = self.driver.open(1, listener=LISTENERS[dialect])
        assert handle is not None
        self.dialect, self.handle, self.received = dialect, handle, b""
        self.draw = random.Random(seed)
        # Message id, user of the request, and the user afterwards; -1: unchanged.
        self.waiting: list[tuple[int, int, int]] = []

    def judge(self, hand_offs: list[tuple[int, int, bytes | None, bytes]]) -> None:
        """Record the user of each hand-off."""
        for _, msgid, method, params in hand_offs:
            found = msgpack.unpackb(params, raw=True)
            words = found[4] if method == b"resp" else [method, *found]
            becomes = -1
            if words[0].lower() == b"auth":
                becomes = int(words[-1])
            elif words[0].lower() == b"hello":
                becomes = int(words[-1][b"user"] if isinstance(words[-1], dict) else words[-1])
            self.waiting.append((msgid, self.driver.user_of(self.handle), becomes))

    def run(self, data: bytes) -> None:
        while data or self.driver.has_work or self.waiting:
            if data and self.driver.wants_input(self.handle):
                size = self.draw.choice([len(data), 1 + self.draw.randrange(len(data))])
                self.judge(self.driver.feed(self.handle, data[:size], 1))
                data = data[size:]
            self.judge(self.driver.run(1))
            if self.waiting and self.draw.random() < 0.5:
                msgid, asker, becomes = self.waiting.pop(self.draw.randrange(len(self.waiting)))
                told = b"%d" % asker
                result = told if self.dialect == "messages" else b"$%d\r\n%s\r\n" % (len(told), told)
                frame = msgpack.packb([1, msgid, None, [told, "v1"] if self.is_get(msgid) else result])
                assert self.driver.reply(self.handle, msgid, frame, becomes)
            self.received += self.driver.take_output(self.handle, 1 << 30, 1)

    def is_get(self, msgid: int) -> bool:
        return self.ops[msgid].kind == "get"

    def told(self, ops: list[Op]) -> list[bytes]:
        self.ops = ops
        self.run(b"".join(op.encode(self.dialect, msgid) for msgid, op in enumerate(ops)))
        if self.dialect == "resp":
            lines = self.received.split(b"\r\n")
            return [line.removeprefix(b"+") for line in lines if line and not line.startswith(b"$")]
        unpacker = msgpack.Unpacker()
        unpacker.feed(self.received)
        answers = {msgid: result[0] if isinstance(result, list) else result for _, msgid, _, result in unpacker}
        return [answers[msgid] for msgid in range(len(ops))]


@pytest.mark.parametrize("dialect", sorted(LISTENERS))
@given(ops=st.lists(OPS, min_size=1, max_size=30), seed=st.integers(0, 2**32 - 1))
@example(ops=[Op("auth", READER), Op("auth", OTHER), Op("get")], seed=0)
@example(ops=[Op("auth", READER), Op("reset"), Op("get")], seed=0)
@example(ops=[Op("who")] * 8 + [Op("hello", READER), Op("get")], seed=3)
def test_a_request_is_done_as_the_user_before_it(published, dialect, ops, seed):
    if dialect == "messages":
        ops = [op for op in ops if op.kind != "reset"]
    assert Stream(published, dialect, seed).told(ops) == expected(ops, dialect)
