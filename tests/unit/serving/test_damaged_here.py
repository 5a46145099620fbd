"""Reads of records that are damaged on this node, and intact on other nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgpack
import pytest

from gossipkv.serving._serving import PublishedTable
from gossipkv.storage.sorted_file import SortedFile
from gossipkv.wire import rpc
from tests.unit.serving.asker import AWAY, HERE, IDENTITY, OTHER, PARTITIONS, RECORDS, Asker, table
from tests.unit.serving.driven import make_version

if TYPE_CHECKING:
    from pathlib import Path

    from gossipkv.wire.rpc import Value

VALUES: dict[bytes, bytes] = dict.fromkeys(RECORDS, b"as others have it")


@pytest.fixture
def asker(tmp_path: Path) -> Asker:
    """Return an asker whose only partition is damaged, and a peer with all partitions."""
    files = make_version(tmp_path, "db", "v1", RECORDS, PARTITIONS).files
    broken = next(path for path in tmp_path.glob("*.gkv") if HERE[0] in path.read_bytes())
    image = bytearray(broken.read_bytes())
    image[image.index(RECORDS[HERE[0]])] ^= 1
    files[0] = SortedFile(bytes(image), name="damaged.gkv")
    return Asker(tmp_path, files=files)


def damage(asker: Asker) -> list[object]:
    """Return the reports of damage since the last call."""
    told = asker.core.take_peer_events()
    assert {event for _, event, _ in told} <= {"damaged"}
    return [msgpack.unpackb(what, raw=True) for _, _, what in told]


def test_another_owner_is_asked(asker: Asker) -> None:
    """The client gets the record, and Python one report of the damage until it has looked."""
    for msgid, key in enumerate(HERE[:3]):
        asker.get(key, msgid=msgid)
        asker.links[0].answer(asker.links[0].asked(), VALUES[key])
        assert asker.answers() == [[1, msgid, None, [VALUES[key], "v1"]]]
    assert damage(asker) == [[b"db", HERE[0], b"v1"]]
    assert damage(asker) == []
    assert (asker.count("forwarded"), asker.count("handed_off"), asker.count("gets")) == (3, 0, 0)


def test_what_is_damaged_of_a_batch_is_asked_for(asker: Asker) -> None:
    """Keys of damaged and missing partitions are asked for together; intact records are read here."""
    for msgid, keys in enumerate(([HERE[0], AWAY[0], HERE[1]], HERE[:2])):
        assert asker.client.send(rpc.request(msgid, "get_many", ["db", keys])) == []
        ((_, wire, method, (_, asked, _)),) = asker.links[0].requests()
        assert (method, asked) == (b"get_many", keys)
        asker.links[0].say(rpc.response(wire, [[VALUES[key] for key in asked], "v1"]))
        assert asker.answers() == [[1, msgid, None, [[VALUES[key] for key in keys], "v1"]]]
    assert damage(asker) == [[b"db", HERE[0], b"v1"]]
    assert asker.count("held_bytes") == 0


@pytest.mark.parametrize("options", [{"local": True}, {"forwarded": True, "identity": IDENTITY}])
@pytest.mark.parametrize("method", ["get", "get_many"])
def test_what_must_stay_here_does(asker: Asker, method: str, options: Value) -> None:
    """Python answers CORRUPT, as on a single node."""
    subject = HERE[0] if method == "get" else [HERE[0]]
    handed = asker.client.send(rpc.request(1, method, ["db", subject, options]))
    assert [(msgid, name) for _, msgid, name, _ in handed] == [(1, method.encode())]
    assert asker.links[0].requests() == []


@pytest.mark.parametrize("method", ["get", "get_many"])
@pytest.mark.parametrize("others", ["none", "others", "dead"])
def test_nobody_else_has_it(asker: Asker, method: str, others: str) -> None:
    """Without another live owner Python answers CORRUPT at once."""
    if others == "none":
        asker.core.forget_route(IDENTITY)
    elif others == "others":
        asker.core.set_holder(IDENTITY, PARTITIONS, 0, b"\x0e")
    else:
        asker.core.set_peer(0, "peer0:1", 2)
    subject = HERE[0] if method == "get" else [AWAY[0], HERE[0]]
    handed = asker.client.send(rpc.request(1, method, ["db", subject]))
    assert [(msgid, name) for _, msgid, name, _ in handed] == [(1, method.encode())]
    assert asker.links[0].requests() == []


@pytest.mark.parametrize("method", ["get", "get_many"])
def test_it_is_asked_for_until_the_time_is_over(asker: Asker, method: str) -> None:
    """Further rounds ask as well, until the read is given up like others."""
    subject = HERE[0] if method == "get" else [HERE[0]]
    assert asker.client.send(rpc.request(1, method, ["db", subject])) == []
    (link,) = asker.links
    handed = []
    rounds = 0
    while not handed:
        for asked in link.requests():
            rounds += 1
            assert isinstance(asked[1], int)
            assert link.refuse(asked[1], "CORRUPT") == []
        handed = asker.wait(1)
    ((_, msgid, name, report),) = handed
    assert (msgid, name) == (1, None)
    assert msgpack.unpackb(report)[2] == 0
    assert 2 < rounds < 20


@pytest.mark.parametrize("method", ["get", "get_many"])
def test_who_is_slow_is_asked_once(asker: Asker, method: str) -> None:
    """A slow owner is asked once over several rounds, and its late answer counts."""
    subject, value = (HERE[0], VALUES[HERE[0]]) if method == "get" else (HERE[:2], [VALUES[key] for key in HERE[:2]])
    assert asker.client.send(rpc.request(1, method, ["db", subject])) == []
    (link,) = asker.links
    wire = link.asked(method.encode())
    assert asker.wait(80) == []
    assert asker.count("forward_rounds") >= 2
    assert link.requests() == []
    assert link.say(rpc.response(wire, [value, "v1"])) == []
    assert asker.answers() == [[1, 1, None, [value, "v1"]]]


@pytest.mark.parametrize("method", ["get", "get_many"])
def test_it_is_whole_again(asker: Asker, method: str, tmp_path: Path) -> None:
    """The next round finds the rebuilt partition, in the same version or a newer one."""
    subject = HERE[0] if method == "get" else [HERE[0]]
    (link,) = asker.links
    assert asker.client.send(rpc.request(1, method, ["db", subject])) == []
    ((_, wire, _, _),) = link.requests()
    assert isinstance(wire, int)
    built = tmp_path / "again"
    built.mkdir()
    files = make_version(built, "db", "v2", RECORDS, PARTITIONS).files
    if method == "get":
        asker.core.publish(table(files))
    else:
        asker.core.publish(PublishedTable([("db", "v2", [("v2", 0, files, OTHER, True)])]))
    link.refuse(wire, "NOT_READY")
    asker.wait(1)
    value, version = RECORDS[HERE[0]], "v1" if method == "get" else "v2"
    assert asker.answers() == [[1, 1, None, [value if method == "get" else [value], version]]]
