"""Batches with keys on other nodes, driven by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgpack
import pytest

from gossipkv.serving._serving import PublishedTable
from gossipkv.wire import rpc
from tests.unit.serving.asker import (
    ALL,
    AWAY,
    HERE,
    IDENTITY,
    OTHER,
    PARTITIONS,
    RECORDS,
    Asker,
    Link,
    partition_of,
    table,
)
from tests.unit.serving.driven import Peer, make_core, make_version

if TYPE_CHECKING:
    from pathlib import Path

    from gossipkv.storage.sorted_file import SortedFile
    from gossipkv.wire.rpc import Value


@pytest.fixture
def asker(tmp_path: Path) -> Asker:
    return Asker(tmp_path)


def ask_many(asker: Asker, keys: list[bytes], msgid: int = 1, **options: Value) -> None:
    """Send a batch; check that no answer has come."""
    assert asker.client.send(rpc.request(msgid, "get_many", ["db", keys, options])) == []
    assert asker.client.received == b""


def answer(link: Link, msgid: object, keys: list[bytes], values: dict[bytes, bytes], version: str = "v1") -> None:
    """Let a peer answer a part of a batch."""
    assert isinstance(msgid, int)
    assert link.say(rpc.response(msgid, [[values.get(key) for key in keys], version])) == []


def parts(link: Link) -> list[tuple[int, list[bytes]]]:
    """Return ids and keys of the parts that a peer was asked for since the last call."""
    asked: list[tuple[int, list[bytes]]] = []
    for kind, msgid, method, params in link.requests():
        assert (kind, method) == (0, b"get_many")
        assert isinstance(msgid, int)
        assert isinstance(params, list)
        database, keys, options = params
        assert (database, options[b"forwarded"]) == (b"db", True)
        assert options.keys() == {b"forwarded", b"identity", b"max_frame"}
        asked.append((msgid, keys))
    return asked


def part(link: Link) -> tuple[int, list[bytes]]:
    """Return the only part since the last call."""
    (asked,) = parts(link)
    return asked


def serve(link: Link, values: dict[bytes, bytes], version: str = "v1") -> int:
    """Answer all parts of a peer; return the number of keys."""
    asked = parts(link)
    for msgid, keys in asked:
        answer(link, msgid, keys, values, version)
    return sum(len(keys) for _, keys in asked)


def split(tmp_path: Path, owners: list[bytes]) -> Asker:
    """Return an asker with a peer for each set of partitions."""
    asker = Asker(tmp_path, len(owners))
    for column, held in enumerate(owners):
        asker.core.set_holder(IDENTITY, PARTITIONS, column, held)
    return asker


def test_a_batch_is_gathered_in_order(tmp_path: Path) -> None:
    """Values, misses and repetitions of this node and two peers keep their order."""
    asker = split(tmp_path, [b"\x06", b"\x08"])
    keys = [*RECORDS, b"none", *AWAY[:3], b"neither"]
    ask_many(asker, keys)
    assert sum(serve(link, RECORDS) for link in reversed(asker.links)) == len(
        [key for key in keys if partition_of(key)]
    )
    assert asker.answers() == [[1, 1, None, [[RECORDS.get(key) for key in keys], "v1"]]]
    assert (asker.count("forwarded"), asker.count("in_flight"), asker.count("held_bytes")) == (1, 0, 0)
    assert asker.count("forward_attempts") == 2


def test_an_owner_answers_a_part(asker: Asker, tmp_path: Path) -> None:
    """The owner answers by identity, though the version is not active there, and without Python."""
    core = make_core()
    core.publish(table([None, *make_version(tmp_path, "db", "v1", RECORDS, PARTITIONS).files[1:]], active=False))
    owner = Peer(core)
    keys = [*RECORDS, b"nowhere"]
    ask_many(asker, keys)
    (link,) = asker.links
    assert owner.send(asker.client.driver.take_output(link.handle, 1 << 30, 1)) == []
    assert link.say(owner.received) == []
    assert asker.answers() == [[1, 1, None, [[RECORDS.get(key) for key in keys], "v1"]]]
    assert core.counters()["handed_off"] == 0


def test_who_holds_all_is_asked_for_all(tmp_path: Path) -> None:
    """A batch uses as few parts as possible, and equal peers alternate."""
    asker = Asker(tmp_path, 2)
    asked = []
    for number in range(20):
        ask_many(asker, AWAY, msgid=number)
        asked += [[serve(link, RECORDS) for link in asker.links]]
        asker.client.take()
        asker.client.received = b""
    assert {tuple(sorted(counts)) for counts in asked} == {(0, len(AWAY))}
    assert len({tuple(counts) for counts in asked}) == 2


def test_a_part_is_bounded(asker: Asker) -> None:
    """The bytes of a part are limited, so that an owner never refuses it."""
    keys = [b"%05d" % number + b"k" * 5000 for number in range(100)]
    ask_many(asker, keys)
    asked = parts(asker.links[0])
    assert len(asked) > 5
    assert sorted(key for _, held in asked for key in held) == [key for key in keys if partition_of(key)]
    for msgid, held in asked:
        assert sum(map(len, held)) < 65_536 + 5_100
        answer(asker.links[0], msgid, held, {})
    assert asker.answers() == [[1, 1, None, [[None] * len(keys), "v1"]]]


@pytest.mark.parametrize("code", ["NOT_SERVED", "NOT_READY", "UNKNOWN_VERSION", "CORRUPT", "OVERLOADED", "INTERNAL"])
def test_a_part_that_fails_goes_elsewhere_alone(tmp_path: Path, code: str) -> None:
    """The keys of a failed part go to their next owners at once; other parts are not affected."""
    asker = split(tmp_path, [b"\x0e", b"\x02", b"\x0c"])
    asker.core.set_peer(1, "peer1:1", 1)
    asker.core.set_peer(2, "peer2:1", 1)
    ask_many(asker, list(RECORDS))
    first, second, third = asker.links
    msgid, keys = part(first)
    assert keys == [key for key in list(RECORDS) if partition_of(key)]
    assert first.refuse(msgid, code) == []
    assert [part(link)[1] for link in (second, third) if link.has_requests()] == [
        [key for key in keys if partition_of(key) == 1],
        [key for key in keys if partition_of(key) > 1],
    ]


def test_a_peer_that_is_lost_is_followed_by_the_next(tmp_path: Path) -> None:
    """A partial answer is discarded."""
    asker = Asker(tmp_path, 2)
    ask_many(asker, AWAY)
    first, second = asker.links if asker.links[0].has_requests() else asker.links[::-1]
    msgid, keys = part(first)
    first.say(rpc.response(msgid, [[b"wrong"] * len(keys), "v1"])[:-1])
    first.close()
    assert serve(second, RECORDS) == len(AWAY)
    assert asker.answers() == [[1, 1, None, [[RECORDS[key] for key in AWAY], "v1"]]]


@pytest.mark.parametrize(
    "result",
    [
        [[b"value"] * 4, "v1"],
        [[b"value"] * 6, "v1"],
        [[b"value"] * 5, "v2"],
        [[b"value"] * 5],
        [[b"value"] * 5, "v1", 1],
        [[*[b"value"] * 4, "text"], "v1"],
        [[*[b"value"] * 4, 1], "v1"],
        [b"value", "v1"],
        [None, "v1"],
        b"value",
    ],
)
def test_who_answers_a_part_with_nonsense_is_not_believed(tmp_path: Path, result: Value) -> None:
    """The connection ends, the answer is discarded, and the next owner is asked at once."""
    asker = Asker(tmp_path, 2)
    ask_many(asker, AWAY[:5])
    first, second = asker.links if asker.links[0].has_requests() else asker.links[::-1]
    assert first.say(rpc.response(part(first)[0], result)) == []
    assert first.ends
    first.close()
    assert serve(second, RECORDS) == 5
    assert asker.answers() == [[1, 1, None, [[RECORDS[key] for key in AWAY[:5]], "v1"]]]
    assert asker.count("closed_bad_answer") == 1


def test_silence_has_the_next_owners_asked_as_well(tmp_path: Path) -> None:
    """The first answer for a key counts; the silent peer may still answer the other keys."""
    asker = split(tmp_path, [b"\x0e", b"\x02", b"\x0c"])
    asker.core.set_peer(1, "peer1:1", 1)
    asker.core.set_peer(2, "peer2:1", 1)
    ask_many(asker, AWAY, timeout_ms=1000)
    first, second, third = asker.links
    msgid, keys = part(first)
    assert asker.wait(29) == []
    assert not second.has_requests()
    assert asker.wait(1) == []
    assert serve(second, RECORDS) == len([key for key in AWAY if partition_of(key) == 1])
    abandoned = part(third)
    answer(first, msgid, keys, dict.fromkeys(AWAY, b"late"))
    assert asker.answers() == [
        [1, 1, None, [[RECORDS[key] if partition_of(key) == 1 else b"late" for key in AWAY], "v1"]]
    ]
    answer(third, *abandoned, RECORDS)
    assert (asker.answers(), asker.count("forward_answers_late"), third.ends) == ([], 1, False)
    assert (asker.count("held_bytes"), asker.count("in_flight")) == (0, 0)


def test_who_is_silent_to_a_part_is_not_asked_again(tmp_path: Path) -> None:
    """A silent peer is not asked again, in later rounds either, until it has a new connection."""
    asker = Asker(tmp_path, 2, proxy_timeout_ms=1000)
    ask_many(asker, AWAY, timeout_ms=1000)
    first, second = asker.links if asker.links[0].has_requests() else asker.links[::-1]
    late = part(first)
    asker.wait(30)
    for _ in range(4):
        second.refuse(part(second)[0], "NOT_READY")
        assert asker.wait(20) == []
        assert not first.has_requests()
    first.close()
    asker.links[first.column] = first = asker.link(first.column)
    asker.core.set_peer(second.column, "second:1", 1)
    second.refuse(part(second)[0], "NOT_READY")
    assert asker.wait(40) == []
    assert part(first)[1] == late[1]


def test_an_answer_to_a_part_has_its_time(tmp_path: Path) -> None:
    """An answer that has begun is waited for, though the other owners have refused."""
    asker = Asker(tmp_path, 2)
    ask_many(asker, AWAY)
    first, second = asker.links if asker.links[0].has_requests() else asker.links[::-1]
    msgid, keys = part(first)
    asker.wait(30)
    frame = rpc.response(msgid, [[b"v" * 900] * len(keys), "v1"])
    first.say(frame[:1000])
    second.refuse(part(second)[0], "NOT_READY")
    for at in range(1000, 1500):
        assert asker.wait(1) == []
        first.say(frame[at : at + 1])
    first.say(frame[1500:])
    assert asker.answers() == [[1, 1, None, [[b"v" * 900] * len(keys), "v1"]]]


def test_a_batch_is_from_one_version(tmp_path: Path) -> None:
    """A switch of the version restarts the batch with all its keys."""
    asker = split(tmp_path, [b"\x02", b"\x0c"])
    ask_many(asker, [HERE[0], *(next(key for key in AWAY if partition_of(key) == p) for p in (1, 2))])
    first, second = asker.links
    answer(first, *part(first), dict.fromkeys(RECORDS, b"old"))
    files: list[SortedFile | None] = [None] * PARTITIONS
    asker.core.publish(PublishedTable([("db", "v2", [("v2", 0, files, OTHER, True)])]))
    asker.core.set_holder(OTHER, PARTITIONS, 0, ALL)
    second.refuse(part(second)[0], "NOT_SERVED")
    asker.wait(1)
    assert serve(first, dict.fromkeys(RECORDS, b"new"), "v2") == 3
    assert asker.answers() == [[1, 1, None, [[b"new"] * 3, "v2"]]]


def test_a_batch_that_is_here_by_now(asker: Asker) -> None:
    """This node answers when the partition has come."""
    ask_many(asker, [HERE[0], AWAY[0]])
    (link,) = asker.links
    link.refuse(part(link)[0], "NOT_READY")
    asker.core.publish(table(asker.files))
    asker.wait(1)
    assert asker.answers() == [[1, 1, None, [[RECORDS[HERE[0]], RECORDS[AWAY[0]]], "v1"]]]


def test_a_batch_is_given_up_once(asker: Asker) -> None:
    """Parts share the request's time; one report is made, and nothing is left."""
    ask_many(asker, AWAY[:5], timeout_ms=300)
    assert asker.wait(299) == []
    ((_, msgid, method, report),) = asker.wait(1)
    assert (msgid, method) == (1, None)
    assert msgpack.unpackb(report)[0][1] in AWAY[:5]
    assert asker.client.driver.reply(asker.client.handle, 1, rpc.response(1, None))
    assert len(asker.answers()) == 1
    assert serve(asker.links[0], RECORDS) == 5
    assert (asker.answers(), asker.count("in_flight"), asker.count("held_bytes")) == ([], 0, 0)


def test_a_part_of_short_keys_has_few_elements(tmp_path: Path) -> None:
    """An owner may take as few elements as the least `max_elements`, and the asker more."""
    asker = Asker(tmp_path, max_elements=1 << 15)
    key = next(key for key in (b"%d" % number for number in range(100)) if partition_of(key))
    ask_many(asker, [key] * 12_000)
    while not asker.links[0].has_requests():  # The batch is read in slices first.
        assert asker.wait(1) == []
    asked = [keys for _, keys in parts(asker.links[0])]
    assert sorted(map(len, asked)) == [12_000 - 8192, 8192]


def test_a_batch_that_is_too_large(tmp_path: Path) -> None:
    """The error is the same as for a batch on this node."""
    asker = Asker(tmp_path, 3, max_frame=2000)
    for column, held in enumerate([b"\x02", b"\x04", b"\x08"]):
        asker.core.set_holder(IDENTITY, PARTITIONS, column, held)
    ask_many(asker, [next(key for key in AWAY if partition_of(key) == p) for p in (1, 2, 3)])
    for link in asker.links:
        serve(link, dict.fromkeys(AWAY, b"x" * 900))
    ((_, msgid, (code, _, details), result),) = asker.answers()
    assert (msgid, code, details, result) == (1, "TOO_LARGE", {"limit": 2000}, None)
    assert (asker.count("in_flight"), asker.count("held_bytes")) == (0, 0)


def test_a_part_that_is_too_large(asker: Asker) -> None:
    """The owner's error is the answer to the batch."""
    ask_many(asker, AWAY)
    assert asker.links[0].refuse(part(asker.links[0])[0], "TOO_LARGE") == []
    assert asker.answers() == [[1, 1, ["TOO_LARGE", "no", {}], None]]
    assert asker.count("in_flight") == 0


def test_a_client_that_leaves_a_batch(asker: Asker) -> None:
    """Nothing is held for the client, and a late answer does no harm."""
    ask_many(asker, AWAY[:5])
    asker.client.driver.close(asker.client.handle)
    asker.links[0].has_requests()
    assert (asker.count("held_bytes"), asker.count("in_flight")) == (0, 0)
    assert serve(asker.links[0], RECORDS) == 5
    assert asker.count("forward_answers_late") == 1
