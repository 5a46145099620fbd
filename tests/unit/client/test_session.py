"""The sans-io session with any split of the stream, any order of answers and any garbage."""

from __future__ import annotations

import itertools

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossipkv.client._client import (
    MAX_ABANDONED,
    Request,
    Session,
    call_request,
    get_many_request,
    get_request,
    page_request,
)  # fmt: skip
from gossipkv.client.reads import packed
from gossipkv.errors import Corrupt, NotReady, ProtocolError, UnknownDatabase
from gossipkv.wire.frames import MAX_DEPTH, MAX_ELEMENTS, MAX_FRAME_BYTES
from tests.oracle import session as oracle
from tests.unit.client.columns import values_of

GEO = msgpack.packb("geo")
LIMITS = {"max_size": MAX_FRAME_BYTES, "max_depth": MAX_DEPTH, "max_elements": MAX_ELEMENTS}
LENGTHS = [0, 1, 15, 16, 31, 32, 255, 256, 65_535, 65_536]


def answer(message_id: int, result: object, error: object = None) -> bytes:
    return msgpack.packb([1, message_id, error, result])


def split(data: bytes, cuts: list[int]) -> list[bytes]:
    """Cut `data` at these places modulo its length."""
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[begin:end] for begin, end in itertools.pairwise(edges)]


def sent(session: Session) -> list[list[object]]:
    unpacker = msgpack.Unpacker(raw=False)
    output = session.take_output()
    session.sent(len(output))
    unpacker.feed(output)
    return list(unpacker)


def ask(session: Session, request: Request | None = None) -> Request:
    request = get_request(GEO, b"k") if request is None else request
    session.send(request)
    return request


@pytest.mark.parametrize("first_id", [0, 127, 128, 255, 256, 65_535, 65_536, 0xFFFF_FFFF])
@pytest.mark.parametrize("length", LENGTHS)
def test_a_request_is_messagepack_rpc(first_id, length):
    """Every kind of request has the bytes of msgpack, for ids and keys of all widths."""
    options = packed({"version": "v1"})
    for request, method, params in [
        (get_request(GEO, bytes(length)), "get", ["geo", bytes(length)]),
        (get_request(GEO, "ü" * 3, options), "get", ["geo", "ü".encode() * 3, {"version": "v1"}]),
        (get_many_request(GEO, [b"k"] * length), "get_many", ["geo", [b"k"] * length]),
        (get_many_request(GEO, [bytes(length)], options), "get_many", ["geo", [bytes(length)], {"version": "v1"}]),
        (get_many_request(GEO, [b"k"] * length, columns=True), "get_many", ["geo", [b"k"] * length]),
        (call_request("scan", ["geo", {"limit": length}]), "scan", ["geo", {"limit": length}]),
        (page_request(["geo", {"limit": length}]), "scan", ["geo", {"limit": length}]),
    ]:  # fmt: skip
        session = Session(first_id=first_id)
        ask(session, request)
        output = session.take_output()
        assert output == oracle.encode(first_id, method, params)
        assert session.queued_bytes == session.unsent_bytes == len(output) <= request.size_bytes
        assert (session.in_flight, session.awaited, session.outstanding()) == (1, 1, [request])


VALUES = st.one_of(st.none(), st.binary(max_size=40), st.sampled_from([bytes(length) for length in LENGTHS]))
STAMPS = st.sampled_from(["v1", "", "2024-05-01", "é" * 20, "x" * 300, b"", b"v1", b"\xff" * 300])
ODD = st.one_of(st.none(), st.booleans(), st.integers(-9, 2**40), st.text(max_size=5), st.lists(st.binary(max_size=3)))
ERRORS = st.sampled_from(
    [["NOT_READY", "why", {}], ["NOT_READY", "why"], ["X", "y", 3], "text", 0, [], {"a": 1}, ["A"]]
)


@st.composite
def conversations(draw):
    """Draw requests with their answers, some of them abandoned."""
    asked = []
    for _ in range(draw(st.integers(0, 8))):
        kind = draw(st.sampled_from(["get", "get_many", "columns", "page", "ping"]))
        keys = draw(st.lists(st.binary(max_size=3), max_size=20))
        stamp = draw(STAMPS)
        result = {
            "get": [draw(VALUES), stamp],
            "get_many": [[draw(VALUES) for _ in keys], stamp],
            "columns": [[draw(VALUES) for _ in keys], stamp],
            "page": [[[key, draw(VALUES) or b""] for key in keys], draw(st.one_of(VALUES, ODD)), stamp],
            "ping": draw(ODD),
        }[kind]
        error = None
        match draw(st.integers(0, 9)):
            case 0:
                result = draw(
                    st.one_of(
                        ODD, st.lists(ODD, max_size=3), st.tuples(ODD, STAMPS), st.tuples(st.lists(ODD), VALUES, STAMPS)
                    )
                )
            case 1:
                error = draw(ERRORS)
        asked.append((kind, keys, result, error, draw(st.integers(0, 4)) == 0))
    return asked


def check_against_oracle(session: Session, requests: dict[int, Request], slow: oracle.Conversation, pieces) -> None:
    """Feed the pieces; outcomes, their order and the session's end must agree with the oracle."""
    names = {id(request): message_id for message_id, request in requests.items()}
    slow.hear(b"".join(pieces))
    found = []
    for piece in pieces:
        room = session.room()
        if room is not None and len(piece) <= len(room):
            room[: len(piece)] = piece
            piece = room[: len(piece)]  # noqa: PLW2901  # The same bytes, in their place.
        for request in session.receive(piece):
            assert request.is_done
            assert request.session is None
            found.append(names[id(request)])
    assert found == [message_id for message_id, _, _ in slow.answers]
    for message_id, kind, result in slow.answers:
        request = requests[message_id]
        if kind == "result":
            wanted = tuple(result) if request.method in {"get", "get_many", "scan"} else result
            found = request.take()
            assert wanted == ((values_of(found[0]), *found[1:]) if request.method != "ping" else found)
        elif kind == "odd":
            assert isinstance(request.error, ProtocolError)
        else:
            assert not isinstance(request.error, ProtocolError)
            assert request.error is not None
    assert (session.failure is None) == (slow.failure is None)
    assert session.answered >= len(slow.answers)
    assert session.in_flight - session.abandoned == len(session.outstanding())
    if slow.failure is None:
        assert session.in_flight == len(slow.requests)
        assert session.abandoned == len(slow.abandoned)


@settings(max_examples=settings.default.max_examples * 4)
@given(
    asked=conversations(),
    order=st.randoms(use_true_random=False),
    cuts=st.lists(st.integers(0, 300_000), max_size=12),
    junk=st.binary(max_size=6),
    first_id=st.sampled_from([0, 120, 250, 65_530, 0xFFFF_FFFC]),
)
def test_every_split_and_order_gives_every_answer_once(asked, order, cuts, junk, first_id):
    """Each request gets its own result once, for any cuts and order of answers."""
    session = Session(first_id=first_id)
    requests, slow, frames = {}, oracle.Conversation({}, limits=LIMITS), []
    for number, (kind, keys, result, error, is_abandoned) in enumerate(asked):
        message_id = (first_id + number) & 0xFFFF_FFFF
        request = {
            "get": lambda: get_request(GEO, b"key"),
            "get_many": lambda keys=keys: get_many_request(GEO, keys),
            "columns": lambda keys=keys: get_many_request(GEO, keys, columns=True),
            "page": lambda: page_request(["geo"]),
            "ping": lambda: call_request("ping", []),
        }[kind]()
        requests[message_id] = ask(session, request)
        slow.requests[message_id] = (kind, ["geo", keys])
        frames.append(answer(message_id, result, error))
        if is_abandoned:
            request.fail(None)
            slow.abandoned.add(message_id)
    order.shuffle(frames)
    check_against_oracle(session, requests, slow, split(b"".join(frames) + junk, cuts))


@pytest.mark.parametrize("cut", range(1, 60))
def test_a_stream_cut_anywhere_is_clean_only_between_answers(cut):
    """`is_clean` is true only between two answers."""
    session = Session()
    frames = [answer(number, [b"some value", "v1"]) for number in range(3)]
    for _ in frames:
        ask(session)
    stream = b"".join(frames)
    session.receive(stream[:cut])
    assert session.is_clean is (cut % len(frames[0]) == 0)
    session.receive(stream[cut:])
    assert session.is_clean
    assert session.answered == len(frames)


def test_byte_by_byte_costs_linear_time_and_the_buffer_is_given_back():
    """A large answer in small pieces arrives whole, and so does the next one."""
    session = Session()
    first, second = ask(session), ask(session)
    stream = answer(0, [b"x" * 3_000_000, "v1"]) + answer(1, [b"y", "v1"])
    done = [request for begin in range(0, len(stream), 997) for request in session.receive(stream[begin : begin + 997])]
    assert done == [first, second]
    assert (len(first.take()[0]), second.take()) == (3_000_000, (b"y", "v1"))


@given(sizes=st.lists(st.integers(0, 400), min_size=3, max_size=6), size=st.integers(1, 5_000))
def test_columns_of_long_answers_never_share_memory(sizes, size):
    """A column has the values of its answer as long as it exists, whatever comes over the same connection."""
    session = Session()
    values = [
        [None if at % 7 == 3 else bytes([number]) * size for at in range(sizes[number])] for number in range(len(sizes))
    ]
    requests = [ask(session, get_many_request(GEO, [b"k"] * len(column), columns=True)) for column in values]
    stream = b"".join(answer(number, [column, "v1"]) for number, column in enumerate(values))
    for piece in split(stream, [*range(0, len(stream), 60_000)]):
        room = session.room()
        if room is not None:
            room[: len(piece)] = piece
        session.receive(piece if room is None else room[: len(piece)])
    for column, request in zip(values, requests, strict=True):
        assert values_of(request.take()[0]) == column
    assert get_many_request(GEO, ["é", b"k"]).keys() == ["é".encode(), b"k"]


def test_errors_come_back_as_their_classes():
    """The class belongs to the code, and message and details are kept."""
    session = Session()
    for number, (code, kind) in enumerate((("UNKNOWN_DATABASE", UnknownDatabase), ("NOT_READY", NotReady))):
        request = ask(session)
        session.receive(answer(number, None, [code, "why", {"progress": 0.5}]))
        assert type(request.error) is kind
        assert (request.error.message, request.error.details) == ("why", {"progress": 0.5})
    request = ask(session)
    session.receive(answer(2, None, ["CORRUPT", "damaged", {"file": "a.gkv", "offset": 4096, "reason": "checksum"}]))
    assert isinstance(request.error, Corrupt)
    assert (request.error.file, request.error.offset) == ("a.gkv", 4096)


@pytest.mark.parametrize("again", [answer(0, [b"x", "v"]), answer(7, [b"x", "v"])])
def test_an_answer_without_a_request_ends_the_session(again):
    """An unknown or answered id is a failure; earlier answers count."""
    session = Session()
    first, second = ask(session), ask(session)
    assert session.receive(answer(0, [b"v", "v1"]) + again + answer(1, [b"w", "v1"])) == [first]
    assert isinstance(session.failure, ProtocolError)
    assert "no request in flight has that id" in session.failure.message
    assert session.receive(answer(1, [b"w", "v1"])) == []
    assert session.outstanding() == [second]


@pytest.mark.parametrize(
    "garbage",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\xc1",
        msgpack.packb(None),
        msgpack.packb([1, 0, None]),
        msgpack.packb([0, 0, "get", []]),
        msgpack.packb([2, "hello", []]),
        msgpack.packb([1, "0", None, None]),
        msgpack.packb([1, -1, None, None]),
        msgpack.packb([1, True, None, None]),
        msgpack.packb([True, 0, None, None]),
        msgpack.packb([1, 2**32, None, [b"v", "v1"]]),
        msgpack.packb([1, 0, None, msgpack.ExtType(5, b"x")]),
        b"\x94\x01\x00\xc0\xa2\xff\xfe",
        b"\x94\x01\x00\xc0\x92\xc0\xa2\xff\xfe",
        b"\xdd\xff\xff\xff\xff",
        b"\x91" * 500,
    ],
)
def test_garbage_ends_the_session(garbage):
    """Garbage is a failure in any cut, and the request stays open."""
    for pieces in ([garbage], [garbage[number : number + 1] for number in range(len(garbage))]):
        session = Session()
        request = ask(session)
        for piece in pieces:
            assert session.receive(piece) == []
        assert isinstance(session.failure, ProtocolError)
        assert not request.is_done


def test_an_answer_over_the_limit_is_refused_at_its_head():
    """The length is refused before the data arrives."""
    session = Session(max_frame=1000)
    ask(session)
    session.receive(b"\x94\x01\x00\xc0\xc6\x7f\xff\xff\xff")
    assert session.failure.details["reason"] == "size"


def test_abandoned_answers_are_dropped():
    """An abandoned request's id is free only after its answer."""
    session = Session()
    first, second = ask(session), ask(session)
    first.fail(None)
    assert (session.in_flight, session.awaited, session.abandoned) == (2, 1, 1)
    assert session.receive(answer(1, [b"2", "v"]) + answer(0, [b"1", "v"])) == [second]
    assert first.result is None
    assert (session.in_flight, session.abandoned) == (0, 0)
    first.fail(None)  # The answer came already, so this does nothing.
    session.receive(answer(0, [b"1", "v"]))
    assert session.failure is not None


def test_a_request_may_go_on_elsewhere():
    """A withdrawn request may be sent on another session; the first session's late answer is dropped."""
    left, taken = Session(), Session(first_id=9)
    request = ask(left)
    with pytest.raises(ValueError, match="in another session"):
        taken.send(request)
    left.withdraw(request)
    with pytest.raises(ValueError, match="not in flight in this session"):
        left.withdraw(request)
    taken.send(request)
    assert left.receive(answer(0, [b"late", "v"])) == []
    assert not request.is_done
    assert taken.receive(answer(9, [b"right", "v"])) == [request]
    assert request.take() == (b"right", "v")
    with pytest.raises(ValueError, match="is done"):
        taken.send(request)


def test_a_node_that_owes_too_much_is_left():
    """The number of unanswered abandoned requests is limited."""
    session = Session()
    requests = [ask(session) for _ in range(MAX_ABANDONED + 1)]
    for request in requests[:-1]:
        request.fail(None)
    assert session.failure is None
    requests[-1].fail(None)
    assert "unanswered" in session.failure.message


def test_ids_wrap_and_skip_those_in_flight():
    """Id 0 follows the last 32-bit id, and an open id is skipped."""
    session = Session(first_id=0xFFFF_FFFE)
    for _ in range(3):
        ask(session)
    assert [message[1] for message in sent(session)] == [0xFFFF_FFFE, 0xFFFF_FFFF, 0]
    wrapped = Session(first_id=0xFFFF_FFFF)
    ask(wrapped)
    oldest = ask(wrapped)
    for _ in range(70_000):  # This is enough without all four thousand million.
        ask(wrapped)
        wrapped.take_output()
    assert oldest.session is wrapped
    assert wrapped.in_flight == 70_002


def test_what_was_sent_is_known_to_the_byte():
    """A request has begun when its first byte was sent."""
    session = Session()
    first, second = ask(session), ask(session)
    size = len(session.take_output()) // 2
    assert not session.has_begun(first)
    session.sent(1)
    assert session.has_begun(first)
    session.sent(size - 1)
    assert not session.has_begun(second)
    session.sent(1)
    assert session.has_begun(second)
    assert session.unsent_bytes == size - 1


def test_a_session_says_when_it_is_full():
    """In-flight requests and unsent bytes are limited; answers and sends make room."""
    session = Session(max_in_flight=2, max_unsent=10_000)
    ask(session)
    assert not session.is_full
    ask(session)
    assert session.is_full
    session.receive(answer(0, [b"v", "v1"]))
    assert not session.is_full
    ask(session, get_request(GEO, bytes(10_000)))
    session.receive(answer(1, [b"v", "v1"]))
    assert session.is_full
    sent(session)
    assert not session.is_full


def test_silence_is_known():
    """Half an answer to another request breaks the silence."""
    session = Session()
    first = ask(session)
    assert session.is_silent(first)
    session.receive(answer(0, [b"v", "v1"])[:3])
    second = ask(session)
    assert (session.is_silent(first), session.is_silent(second)) == (False, True)
