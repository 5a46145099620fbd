"""Reads of single records: locally, else from other nodes in stages; and their errors."""

from __future__ import annotations

import msgpack
import pytest

from gossipkv.errors import BadRequest, Corrupt, NotServed, StorageError, TooLarge, Unavailable, Unknown
from tests.unit.table.record_nodes import CONFIG, TOKEN, Records


@pytest.fixture
def records():
    """Return four nodes with table `t` and the records `0` to `19`.

    Each partition is on two of the first three nodes.
    """
    made = Records(4)
    pairs = [made.nodes[:2], made.nodes[1:3], [made.nodes[2], made.nodes[0]]]
    made.make("t", firsts=3, holders=lambda number: pairs[number])
    for node in made.nodes[:3]:
        route = node.methods.routing.route("t")
        for number in range(20):
            place = route.place(b"%d" % number)
            if node.uuid in place.hosts:
                row = [b"%d" % number, b"value %d" % number]
                node.call("table_write", route.table.id, place.partition, "one", msgpack.packb(row), 1 << 62)
    for node in made.nodes:
        node.asked.clear()
    return made


def holders(records, key):
    """Return the nodes that hold a key's partition, and those that do not."""
    hosts = records.nodes[0].methods.routing.route("t").place(key).hosts
    return [node for node in records.nodes if node.uuid in hosts], [
        node for node in records.nodes if node.uuid not in hosts
    ]


def test_a_key_is_found_by_all(records):
    """A host answers itself, other nodes forward; `explain` names the host, and a tombstone reads as missing."""
    theirs, others = holders(records, b"7")
    for node in theirs:
        assert node.call("get", "t", b"7", {"explain": True}) == [b"value 7", TOKEN, {"node": node.name}]
        assert node.call("get", "t", b"7", {"local": True, "token": b"", "wait_ms": 5, "config": CONFIG}) == [
            b"value 7",
            TOKEN,
        ]
        assert node.asked == []
    for node in others:
        value, _, told = node.call("get", "t", b"7", {"explain": True})
        assert value == b"value 7"
        assert told["node"] in {one.name for one in theirs}
        with pytest.raises(NotServed):
            node.call("get", "t", b"7", {"local": True})
    assert sum(node.asked.count("table_get") for node in theirs) == len(others)
    assert others[0].call("get", "t", b"none") == [None, TOKEN]
    theirs[0].call("delete", "t", b"7", {"level": "one"})
    assert theirs[0].call("get", "t", b"7") == [None, TOKEN]
    assert theirs[0].call("get_many", "t", [b"7"]) == [[None], TOKEN]


def test_many_keys_are_found_by_all(records):
    """The order and repetitions are kept; nodes get one question for all their keys."""
    keys = [b"%d" % (number % 25) for number in range(60)]
    expected = [b"value " + key if int(key) < 20 else None for key in keys]
    for node in records.nodes:
        assert node.call("get_many", "t", keys) == [expected, TOKEN]
    records.nodes[3].call("get_many", "t", [])
    assert sum(node.asked.count("table_get") for node in records.nodes) == 3 + 3
    with pytest.raises(NotServed):
        records.nodes[3].call("get_many", "t", keys, {"local": True})


def test_who_is_slow_is_not_waited_for(records):
    """After a stage the next host is asked as well, and the first answer counts; a lost host costs no time."""
    theirs, (node, *_) = holders(records, b"7")
    theirs[0].hangs = True
    for _ in range(8):
        began = records.now
        assert node.outcome("get", "t", b"7") == [b"value 7", TOKEN]
        assert records.now - began <= 0.1 + 0.001
    assert theirs[0].asked
    theirs[0].is_lost = True
    began = records.now
    for _ in range(8):
        node.call("get", "t", b"7")
    assert records.now == began


def test_nobody_answers(records):
    """The error is UNAVAILABLE with the reason of each host, at once if all are lost, else after the timeout."""
    theirs, (node, *_) = holders(records, b"7")
    for one in theirs:
        one.is_lost = True
    with pytest.raises(Unavailable) as caught:
        node.call("get", "t", b"7")
    assert records.now == 0.0
    assert caught.value.details["asked"] == {one.name: f"{one.name} is not reached" for one in theirs}
    for one in theirs:
        one.is_lost, one.hangs = False, True
    for method, key in (("get", b"7"), ("get_many", [b"7"])):
        began = records.now
        with pytest.raises(Unavailable):
            node.call(method, "t", key, {"timeout_ms": 300})
        assert 0.25 <= records.now - began <= 0.31


def test_a_read_goes_on_after_connections_have_ended(records):
    """The hosts are asked again within the timeout; a write is unknown at once."""
    theirs, (node, *_) = holders(records, b"7")
    for method, key, value in (("get", b"7", b"value 7"), ("get_many", [b"7"], [b"value 7"])):
        for one in theirs:
            one.ends = 2
        assert node.call(method, "t", key) == [value, TOKEN]
        assert (records.now > 0.0, [one.ends for one in theirs]) == (True, [0, 0])
    theirs[0].ends = theirs[1].ends = 1
    with pytest.raises(Unknown):
        node.call("put", "t", b"7", b"value 7")
    assert sum(one.ends for one in theirs) == 1


@pytest.mark.parametrize("error", [StorageError("the store is closed"), Corrupt("a/run", 7, "a page")])
def test_a_copy_that_cannot_be_read(records, error):
    """Another host answers for an unreadable replica; with `local` the client gets the error."""
    (one, two), (node, *_) = holders(records, b"7")

    def get(space, key):
        raise error

    one.get = get
    for asked in (one, two, node, node, node, node):
        assert asked.outcome("get", "t", b"7") == [b"value 7", TOKEN]
    with pytest.raises((Unavailable, Corrupt), match=r"closed|damaged"):
        one.call("get", "t", b"7", {"local": True})


def test_a_forwarded_read_is_not_forwarded_again(records):
    """A node without the partition refuses a request from another node."""
    theirs, (node, *_) = holders(records, b"7")
    (table, partition) = next(
        found for found in theirs[0].replicas.by_partition if found not in node.replicas.by_partition
    )
    with pytest.raises(NotServed):
        node.call("table_get", table, partition.to_bytes(8, "big"), msgpack.packb([b"7"]))
    assert all(one.asked == [] for one in theirs)


def test_an_answer_that_is_none(records):
    """Too few records, damaged records or no list yield UNAVAILABLE."""
    theirs, (node, *_) = holders(records, b"7")
    for answer in (None, [], [[b"no record"], b""], [[b"", b""], b""], [[None], b"\1"], b"x"):
        for one in theirs:
            one.methods.methods[b"table_get"] = lambda _, answer=answer: answer
        for method, key in (("get", b"7"), ("get_many", [b"7"])):
            with pytest.raises(Unavailable):
                node.call(method, "t", key)


def test_more_than_an_answer_holds():
    """The limit of a frame holds for local and for forwarded reads."""
    records = Records(2)
    one, two = records.nodes
    records.make("t", firsts=2, holders=lambda _: [one])
    for number in range(3):
        one.call("put", "t", b"%d" % number, bytes(6 << 20))
    for node in (one, two):
        with pytest.raises(TooLarge, match="ask for fewer"):
            node.call("get_many", "t", [b"0", b"1", b"2"])
        assert len(node.call("get_many", "t", [b"0", b"2"])[0]) == 2


def test_what_a_read_is_not(records):
    """Wrong keys, options and tokens are refused with one clear error each."""
    (node, *_) = records.nodes
    for words, method, *params in (
        ("more than the 65522", "get", "t", bytes(65_530)),
        ("the key must be bytes", "get", "t", 7),
        (r"keys\[1\] must be bytes", "get_many", "t", [b"a", None]),
        ("a table has no versions.*min_version", "get", "t", b"k", {"min_version": "1"}),
        ("the token was not given", "get", "t", b"k", {"token": b"made up"}),
        ("wait_ms must be at least 0", "get", "t", b"k", {"wait_ms": -1}),
        ("config must be an integer", "get_many", "t", [b"k"], {"config": "1"}),
        ("local must be true or false", "get", "t", b"k", {"local": 1}),
        ("unknown option level", "get", "t", b"k", {"level": "one"}),
        ("partition ids have 8 bytes each", "table_get", bytes(16), b"1234567", msgpack.packb([b"k"])),
        ("1 keys must .* have partition ids of 8 bytes", "table_get", bytes(16), bytes(16), msgpack.packb([b"k"])),
        ("ends within its head", "table_get", bytes(16), bytes(8), msgpack.packb([b"k"]), b"cut", 0),
    ):
        with pytest.raises(BadRequest, match=words):
            node.call(method, *params)
