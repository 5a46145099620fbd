"""Redis' protocol: requests, and counts of answers that agree with the oracle."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.load import RedisDialect
from tests.oracle import load_redis as oracle
from tests.unit.loadtest.scripted import Scripted

RECORDS = [(b"key-1", b"value"), (b"key-2", b""), (b"key-3", None), (b"key-4", b"$-1\r\n")]
ODD = [
    b"-ERR no\r\n",
    b"-LOADING\r\n",
    b"-\r\n",
    b"-" + b"x" * 41 + b" y\r\n",
    b":1\r\n",
    b"$x\r\n",
    b"$1\n",
    b"+OK\r\n",
    b"$1\r\nxyz\r\n",
]
ANSWER = st.sampled_from(["right", "right", "right", None, b"", b"other", *ODD])


def bulk(value: bytes | None) -> bytes:
    return b"$-1\r\n" if value is None else b"$%d\r\n%b\r\n" % (len(value), value)


def keys_in(sent: bytes) -> list[bytes]:
    return [part for part in sent.split(b"\r\n") if part.startswith(b"key-")]


def test_redis_is_asked_in_its_own_protocol() -> None:
    """One key is a GET and several are an MGET, after AUTH for a token and SELECT for another database."""
    one = RECORDS[:1]
    for dialect, batch, sent in (
        (RedisDialect(one), 1, b"*2\r\n$3\r\nGET\r\n$5\r\nkey-1\r\n"),
        (RedisDialect(one), 2, b"*3\r\n$4\r\nMGET\r\n$5\r\nkey-1\r\n$5\r\nkey-1\r\n"),
        (RedisDialect(one, database=12), 1, b"*2\r\n$6\r\nSELECT\r\n$2\r\n12\r\n"),
        (RedisDialect(one, token="gkv-t", database=3), 1,
         b"*2\r\n$4\r\nAUTH\r\n$5\r\ngkv-t\r\n*2\r\n$6\r\nSELECT\r\n$1\r\n3\r\n"),
    ):  # fmt: skip
        with Scripted(dialect=dialect, batch=batch) as scripted:
            scripted.generator.begin(requests=1, now_ns=0)
            scripted.turn()
            assert scripted.peer.socket.recv(1 << 16) == sent


@pytest.mark.parametrize(("greeting", "broken"), [(b"+OK\r\n", {}), (b"-ERR DB index\r\n", {"garbage": 1})])
def test_the_database_is_answered_first(greeting: bytes, broken: dict[str, int]) -> None:
    """The answer to SELECT is not counted, a refusal breaks the connection, and pieces are joined."""
    with Scripted(dialect=RedisDialect([(b"key-1", b"v")], database=1)) as scripted:
        scripted.generator.begin(requests=1, now_ns=0)
        scripted.turn()
        assert scripted.peer.socket.recv(1 << 16).startswith(b"*2\r\n$6\r\nSELECT")
        for piece in (greeting[:2], greeting[2:], b"$1\r\nv\r\n"):
            if scripted.generator.connections:
                assert scripted.counted("sent") == [piece.startswith(b"$")]
                scripted.peer.send(piece)
                scripted.turn()
        assert scripted.generator.tally.broken() == broken
        assert scripted.counted("answered", "wrong") == [0 if broken else 1, 0]


@given(
    st.lists(st.lists(ANSWER, min_size=1, max_size=3), min_size=1, max_size=5),
    st.booleans(),
    st.lists(st.integers(0, 2**10), max_size=4),
    st.binary(max_size=4),
)
def test_any_stream_counts_as_the_oracle_says(
    answers: list[list[bytes | str | None]], is_batched: bool, places: list[int], extra: bytes
) -> None:
    """Right and wrong values, errors, garbage and an additional answer are each counted once in any cut."""
    batch = 3 if is_batched else 1
    with Scripted(dialect=RedisDialect(RECORDS), in_flight=len(answers), batch=batch) as scripted:
        scripted.generator.begin(requests=len(answers), now_ns=0)
        keys = keys_in(scripted.peer.socket.recv(1 << 16))
        asked = [[dict(RECORDS)[key] for key in keys[at : at + batch]] for at in range(0, len(keys), batch)]
        stream = b""
        for drawn, expected in zip(answers, asked, strict=True):
            values = [drawn[at % len(drawn)] for at in range(batch)]
            if any(value in ODD for value in values):
                stream += next(value for value in values if value in ODD)
                continue
            stream += b"*%d\r\n" % batch if is_batched else b""
            stream += b"".join(
                bulk(right if value == "right" else value) for value, right in zip(values, expected, strict=True)
            )
        stream += extra
        counted = oracle.count(stream, asked, batched=is_batched)
        cuts = sorted(place % (len(stream) + 1) for place in places)
        for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
            if scripted.generator.connections:
                scripted.peer.send(stream[begin:end])
                scripted.turn()
        tally = scripted.generator.tally
        assert (tally.answered, tally.wrong, tally.errors()) == (counted.answered, counted.wrong, counted.errors)
        assert tally.misses == counted.misses
        assert tally.broken() == ({counted.broken: 1} if counted.broken else {})
