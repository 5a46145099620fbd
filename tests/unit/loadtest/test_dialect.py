"""Answers are counted as by the oracle, for any stream of bytes cut anywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgpack
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gossipkv.loadtest._loadtest import Dialect, RpcDialect
from tests.oracle import load_answers as oracle
from tests.unit.loadtest.scripted import RECORDS, Scripted, answer

if TYPE_CHECKING:
    from collections.abc import Callable

RECORDS_WITH_HOLES = [*RECORDS, (b"absent", None), (b"", b""), (b"long", b"x" * 300), (b"k" * 300, b"y" * 70_000)]
TEXTS = st.sampled_from(["", "BAD_REQUEST", "NOT_READY", "x" * 40, "x" * 41, "\udcff"])
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2**33) | st.floats(allow_nan=False) | TEXTS | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.integers(0, 3), inner, max_size=2),
    max_leaves=8,
)


def pack(value: object) -> bytes:
    return msgpack.packb(value, unicode_errors="surrogateescape")


SHORTER = "shorter"  # In place of a value: the correct one without its last byte.
KINDS = st.sampled_from(["right"] * 6 + ["value", "type", "few", "many", "error", "shape", "id", "forms"])
INSTEAD = {
    "value": st.none() | st.binary(max_size=3) | st.just(SHORTER),
    "type": ANYTHING,
    "many": st.lists(st.none() | st.binary(max_size=3), min_size=1, max_size=3),
    "error": st.tuples(st.lists(ANYTHING, max_size=3) | ANYTHING, st.booleans()),
    "shape": ANYTHING,
    "id": st.integers(-2, 40) | st.integers(2**32 - 2, 2**32 + 2),
}
VERSIONS = st.sampled_from(["1", "", "v" * 40, b"v", 3])

# Places in lists and streams, modulo the length. All values are drawn before the generator asks, so that no draw
# depends on its requests.
PLACES = st.integers(0, 2**21)


class Recipe(NamedTuple):
    """A recipe for an answer, which is mostly right and else wrong in one of many ways."""

    kind: str
    place: int
    instead: object
    version: object

    def reply(self, values: list[bytes | None], message_id: int, *, batched: bool) -> bytes:
        values, at, instead = list(values), self.place % len(values), self.instead
        if self.kind == "value":
            values[at] = (values[at] or b"")[:-1] if instead == SHORTER else instead
        elif self.kind == "type":
            values[at] = instead
        elif self.kind == "few":
            values = values[:at]
        elif self.kind == "many":
            values += instead
        result: object = [values if batched else (values or [None])[0], self.version]
        error = None
        if self.kind == "error":
            error, has_result = instead
            result = result if has_result else None
        elif self.kind == "shape":
            result = instead
        elif self.kind == "id":
            message_id = instead
        if self.kind == "forms":  # The number and the envelope have longer forms than needed.
            return b"\xdc\x00\x04\xcc\x01\xd3" + message_id.to_bytes(8, "big") + pack(error) + pack(result)
        return pack([1, message_id, error, result])


RECIPES = KINDS.flatmap(
    lambda kind: st.builds(Recipe, st.just(kind), PLACES, INSTEAD.get(kind, st.none()), VERSIONS),
)


@given(
    recipes=st.lists(st.tuples(st.integers(0, 99), RECIPES), min_size=1, max_size=4),
    batch=st.integers(1, 5),
    seed=st.integers(0, 1000),
    extra=st.none() | st.binary(max_size=6) | PLACES,
    end=st.none() | PLACES,
    cuts=st.lists(PLACES, max_size=8),
)
def test_any_stream_counts_as_the_oracle_says(
    *,
    recipes: list[tuple[int, Recipe]],
    batch: int,
    seed: int,
    extra: bytes | int | None,
    end: int | None,
    cuts: list[int],
) -> None:
    """Each right, wrong, refused, garbled, unasked or truncated answer is counted once."""
    in_flight = len(recipes)
    with Scripted(RECORDS_WITH_HOLES, in_flight=in_flight, batch=batch, seed=seed) as scripted:
        scripted.generator.begin(requests=in_flight, now_ns=0)
        values = dict(RECORDS_WITH_HOLES)
        asked = {each.message_id: [values[key] for key in each.keys] for each in scripted.peer.asked()}
        assert len(asked) == in_flight
        order = sorted(zip(recipes, sorted(asked), strict=True), key=lambda answer: answer[0][0])
        stream = b"".join(recipe.reply(asked[each], each, batched=batch > 1) for (_, recipe), each in order)
        if isinstance(extra, bytes):
            stream += extra
        elif extra is not None:
            stream += answer(order[extra % in_flight][1], None)
        stream = stream if end is None else stream[: end % (len(stream) + 1)]
        cuts = sorted(cut % (len(stream) + 1) for cut in cuts)
        expected = oracle.count(stream, asked, batched=batch > 1)
        feed(scripted, stream, cuts)
        lost = len(asked) if expected.broken else 0
        assert scripted.counted("answered", "wrong", "refused", "lost") == [
            expected.answered,
            expected.wrong,
            expected.errors.total(),
            lost,
        ]
        assert scripted.generator.tally.errors() == expected.errors
        assert scripted.generator.tally.broken() == ({expected.broken: 1} if expected.broken else {})
        if asked and not expected.broken:
            scripted.peer.end()
            scripted.turn()
            assert scripted.counted("lost") == [len(asked)]
            assert scripted.generator.tally.broken() == {"closed": 1}


def feed(scripted: Scripted, stream: bytes, cuts: list[int]) -> None:
    """Send a stream in pieces while a connection is open."""
    for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        for small in range(begin, end, 50_000):  # A socket takes this much at once.
            if scripted.generator.connections:
                scripted.peer.send(stream[small : min(end, small + 50_000)])
                scripted.turn()


@given(st.binary(max_size=40))
@example(b"\x90" * 40)
@example(bytes.fromhex("dd ffffffff"))
@example(bytes.fromhex("94 01 00 c0 92 c6 ffffffff"))
def test_any_bytes_count_as_the_oracle_says(stream: bytes) -> None:
    """Random bytes break the connection exactly when they violate the protocol."""
    with Scripted() as scripted:
        scripted.generator.begin(requests=1, now_ns=0)
        (asked,) = scripted.peer.asked()
        expected = oracle.count(stream, {asked.message_id: [dict(RECORDS)[asked.keys[0]]]}, batched=False)
        feed(scripted, stream, [])
        assert scripted.generator.tally.broken() == ({expected.broken: 1} if expected.broken else {})


@pytest.mark.parametrize(
    ("batch", "make", "wrong", "broken"),
    [
        (1, lambda each, values: [1, each, None, [values[0], "1", "more"]], 1, {}),
        (1, lambda each, values: [1, each, None, [values[0]]], 1, {}),
        (3, lambda each, values: [1, each, None, [values, "1", "more"]], 3, {}),
        (3, lambda each, values: [1, each, None, [[[1, [2, "abc"]], *values[1:]], "1"]], 1, {}),
        (3, lambda each, values: [1, each, None, [[{"a": [1]}, "text", values[2]], "1"]], 2, {}),
        (1, lambda each, values: [1, each + 2**32, None, [values[0], "1"]], 0, {"garbage": 1}),
        (1, lambda each, values: [1, each, None, [values[0], "1"], 0], 0, {"garbage": 1}),
        (1, lambda each, values: [2, "hello", []], 0, {"garbage": 1}),
    ],
)
def test_shapes_of_answers(batch: int, make: Callable[..., object], wrong: int, broken: dict[str, int]) -> None:
    """Wrong shapes around and between values are counted as expected, and as by the oracle."""
    with Scripted(batch=batch) as scripted:
        scripted.generator.begin(requests=1, now_ns=0)
        (asked,) = scripted.peer.asked()
        values = [dict(RECORDS)[key] for key in asked.keys]
        stream = pack(make(asked.message_id, values))
        expected = oracle.count(stream, {asked.message_id: values}, batched=batch > 1)
        assert (expected.wrong, expected.broken) == (wrong, next(iter(broken), None))
        feed(scripted, stream, [])
        assert (scripted.counted("wrong"), scripted.generator.tally.broken()) == ([wrong], broken)


@given(st.integers(0, 2**64 - 1), st.integers(1, 30))
def test_keys_follow_from_the_seed(seed: int, number: int) -> None:
    """The keys agree with the oracle in order, and depend on the seed."""
    records = RECORDS[:number] if number <= len(RECORDS) else RECORDS
    with Scripted(records, in_flight=10, batch=5, seed=seed) as scripted:
        scripted.generator.begin(requests=10, now_ns=0)
        keys = [key for each in scripted.peer.asked() for key in each.keys]
    assert keys == [records[at][0] for at in oracle.draws(seed, len(records), 50)]


@pytest.mark.parametrize("batch", [1, 2, 15, 16, 17, 300])
def test_requests_are_what_a_node_reads(batch: int) -> None:
    """One key is a `get` and several are a `get_many`; keys and ids may be long."""
    with Scripted([(b"k" * size, b"") for size in (0, 255, 256, 70_000)], in_flight=300, batch=batch) as scripted:
        scripted.generator.begin(requests=300 if batch == 1 else 2, now_ns=0)
        found = []
        while len(found) < scripted.counted("sent")[0]:
            found += scripted.peer.asked()
            scripted.turn()
        assert {each.method for each in found} == {"get" if batch == 1 else "get_many"}
        assert {len(each.keys) for each in found} == {batch}
        assert len({each.message_id for each in found}) == len(found)


@pytest.mark.parametrize("records", [[], [(b"k", "v")], [("k", b"v")], [(b"k",)], [None]])
def test_records_are_bytes(records: list[object]) -> None:
    """A missing or malformed record is refused."""
    with pytest.raises((ValueError, TypeError)):
        RpcDialect("db", records)


def test_records_can_be_read_back() -> None:
    """The dialect copies its records."""
    dialect = RpcDialect("db", RECORDS_WITH_HOLES)
    assert isinstance(dialect, Dialect)
    assert [dialect.record(at) for at in range(len(dialect))] == RECORDS_WITH_HOLES
    for wrong in (-1, len(dialect)):
        with pytest.raises(IndexError):
            dialect.record(wrong)


def test_a_long_name_is_refused() -> None:
    with pytest.raises(ValueError, match="255"):
        RpcDialect("d" * 256, RECORDS)
