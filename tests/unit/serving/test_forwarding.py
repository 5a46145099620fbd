"""Reads that other nodes answer, driven by hand: two cores with a link, or peers that misbehave."""

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
    partition_of,
    table,
)
from tests.unit.serving.driven import NODE, Peer, make_core, make_version
from tests.world.cold_pages import pages_come_and_go

if TYPE_CHECKING:
    from pathlib import Path

    from gossipkv.storage.sorted_file import SortedFile
    from gossipkv.wire.rpc import Value


@pytest.fixture
def asker(tmp_path: Path) -> Asker:
    return Asker(tmp_path)


def test_a_read_is_answered_by_another_node(asker: Asker, tmp_path: Path) -> None:
    """The owner answers by identity, though the version is not active there."""
    core = make_core()
    core.publish(table([None, *make_version(tmp_path, "db", "v1", RECORDS, PARTITIONS).files[1:]], active=False))
    owner = Peer(core)
    (link,) = asker.links
    keys = [*RECORDS, b"nowhere", b"neither"]
    for at in range(0, len(keys), 50):
        for number, key in enumerate(keys[at : at + 50]):
            assert asker.client.send(rpc.request(at + number, "get", ["db", key])) == []
        assert owner.send(asker.client.driver.take_output(link.handle, 1 << 30, 1)) == []
        assert link.say(owner.received) == []
        owner.received = b""
    answers = asker.answers()
    assert {msgid: result for _, msgid, _, result in answers} == {
        number: [RECORDS.get(key), "v1"] for number, key in enumerate(keys)
    }
    assert len(answers) == len(keys)
    assert asker.count("forwarded") == asker.count("forward_answers") == len([*AWAY, *keys[len(RECORDS) :]])
    assert core.counters()["handed_off"] == 0


def test_what_travels(asker: Asker) -> None:
    """The request has database, key, identity and `forwarded`; the answer has the client's id."""
    asker.get(AWAY[0], msgid=70_000, timeout_ms=50, min_version="v0")
    (link,) = asker.links
    ((kind, msgid, method, params),) = link.requests()
    assert (kind, method) == (0, b"get")
    assert params == [b"db", AWAY[0], {b"forwarded": True, b"identity": IDENTITY, b"max_frame": 1 << 20}]
    assert isinstance(msgid, int)
    link.answer(msgid, b"as it came")
    assert asker.answers() == [[1, 70_000, None, [b"as it came", "v1"]]]


@pytest.mark.parametrize("method", ["get", "get_many"])
def test_who_holds_it_is_not_known_yet(asker: Asker, method: str) -> None:
    """The read waits for news of an owner as long as for an owner."""
    (link,) = asker.links
    subject = AWAY[0] if method == "get" else [AWAY[0]]
    asker.core.forget_route(IDENTITY)
    assert asker.client.send(rpc.request(1, method, ["db", subject])) == []
    assert asker.wait(20) == []
    assert link.requests() == []
    asker.core.set_holder(IDENTITY, PARTITIONS, 0, ALL)
    assert asker.wait(30) == []
    (asked,) = link.requests()
    assert asked[2] in {b"get", b"get_many"}
    asker.core.forget_route(IDENTITY)
    assert asker.client.send(rpc.request(2, method, ["db", subject])) == []
    handed = asker.wait(100)
    assert [(msgid, name) for _, msgid, name, _ in handed] == [(2, None)]  # The first one waits for its owner.
    assert msgpack.unpackb(handed[0][3], raw=True)[-1] == []


@pytest.mark.parametrize("value", [b"value", None, b""])
@pytest.mark.parametrize("options", [{}, {"version": "v1"}, {"min_version": "v0", "timeout_ms": 80}])
def test_who_has_answered_is_told(tmp_path: Path, value: bytes | None, options: dict[str, Value]) -> None:
    """The answer names the owner; owners are asked without the option, since they may be older."""
    asker = Asker(tmp_path, 2)
    asker.get(AWAY[0], explain=True, **options)
    first, second = asker.links if asker.links[0].has_requests() else asker.links[::-1]
    ((_, wire, _, params),) = first.requests()
    assert isinstance(params, list)
    assert params[2].keys() == {b"forwarded", b"identity", b"max_frame"}
    asker.wait(30)
    second.answer(second.asked(), value)
    assert isinstance(wire, int)
    first.answer(wire, b"late")
    assert asker.answers() == [[1, 1, None, [value, "v1", {"node": f"peer{second.column}:1"}]]]


def test_who_has_answered_is_told_of_what_has_come_here(asker: Asker) -> None:
    """The node names itself if the partition has come by then; `explain: false` adds nothing."""
    for explain in (True, False):
        asker.get(AWAY[0], explain=explain)
        asker.links[0].refuse(asker.links[0].asked(), "NOT_READY")
        asker.publish(table(asker.files))
        asker.wait(5)
        who = [{"node": NODE}] if explain else []
        assert asker.answers() == [[1, 1, None, [RECORDS[AWAY[0]], "v1", *who]]]
        asker.publish(table([asker.files[0], None, None, None]))


def test_an_answer_that_fits_until_it_is_explained(tmp_path: Path) -> None:
    """The answer becomes TOO_LARGE, and the connection goes on."""
    asker = Asker(tmp_path, max_frame=2000)
    (link,) = asker.links
    room = 2000 - len(rpc.response(1, [b"x" * 1000, "v1", {"node": "peer0:1"}])) + 1000
    for size, fits in ((room, True), (room + 1, False), (room + 5, False)):
        asker.get(AWAY[0], explain=True)
        link.answer(link.asked(), b"x" * size)
        ((_, _, error, result),) = asker.answers()
        assert (result is not None) is fits, size
        assert fits or (error[0], error[2]) == ("TOO_LARGE", {"limit": 2000})
        assert not link.ends
    assert asker.count("held_bytes") == 0


def test_a_miss_is_an_answer(asker: Asker) -> None:
    asker.get(AWAY[0])
    asker.links[0].answer(asker.links[0].asked(), None)
    assert asker.answers() == [[1, 1, None, [None, "v1"]]]


@pytest.mark.parametrize("code", ["NOT_SERVED", "NOT_READY", "UNKNOWN_VERSION", "CORRUPT", "OVERLOADED", "INTERNAL"])
def test_who_refuses_is_followed_by_the_next_at_once(tmp_path: Path, code: str) -> None:
    """The next owner is asked without delay; a busy owner is asked last from then on."""
    asker = Asker(tmp_path, 2)
    asker.get(AWAY[0])
    first, second = asker.links if asker.links[0].has_requests() else reversed(asker.links)
    assert first.refuse(first.asked(), code) == []
    second.answer(second.asked(), b"value")
    assert asker.answers() == [[1, 1, None, [b"value", "v1"]]]
    assert asker.count(f"forward_{'refused' if code == 'INTERNAL' else code.lower()}") == 1
    if code == "OVERLOADED":
        for number in range(10):
            asker.get(AWAY[1], msgid=2 + number)
            second.asked()


@pytest.mark.parametrize("method", ["get", "get_many"])
def test_an_owner_that_may_send_more_than_the_asker_reads(tmp_path: Path, method: str) -> None:
    """The owner learns the asker's limit and answers TOO_LARGE; the connection goes on."""
    asker = Asker(tmp_path, max_frame=2000)
    core = make_core(max_frame=1 << 20)
    records = {**dict.fromkeys(AWAY, b"x" * 900), AWAY[0]: b"x" * 2000}
    core.publish(table([None, *make_version(tmp_path, "db", "v1", records, PARTITIONS).files[1:]]))
    owner = Peer(core)
    (link,) = asker.links
    for key in (AWAY[0], AWAY[1]):
        subject = key if method == "get" else [key]
        assert asker.client.send(rpc.request(1, method, ["db", subject])) == []
        assert owner.send(asker.client.driver.take_output(link.handle, 1 << 30, 1)) == []
        assert link.say(owner.received) == []
        owner.received = b""
        assert not link.ends
        ((_, _, error, result),) = asker.answers()
        if key == AWAY[1]:
            assert (error, result) == (None, [records[key] if method == "get" else [records[key]], "v1"])
        else:
            assert (error[0], error[2]["limit"]) == ("TOO_LARGE", 2000)
            assert "max_frame" in error[1] or method == "get_many"
    assert core.counters()["handed_off"] == 0


@pytest.mark.parametrize("state", [1, 2])
def test_the_suspected_and_the_dead_are_asked_last(tmp_path: Path, state: int) -> None:
    """Suspected and dead owners are asked after live owners, and still answer if no other node does."""
    asker = Asker(tmp_path, 2)
    doubted, alive = asker.links
    asker.core.set_peer(0, "peer0:1", state)
    for number in range(10):
        asker.get(AWAY[number], msgid=number)
        assert alive.has_requests()
        alive.refuse(alive.asked(), "NOT_READY")
        assert doubted.has_requests()
        doubted.answer(doubted.asked(), b"value")
        assert asker.answers() == [[1, number, None, [b"value", "v1"]]]


def test_the_connection_to_a_peer_is_ended(tmp_path: Path) -> None:
    """Its reads ask other owners at once, and the node hears of it."""
    asker = Asker(tmp_path, 2)
    frozen, alive = asker.links
    asker.core.set_peer(1, "peer1:1", 1)
    asker.get(AWAY[0])
    assert frozen.has_requests()
    asker.core.end_peer(0)
    assert frozen.ends
    frozen.close()
    asker.wait(1)
    alive.answer(alive.asked(), b"value")
    assert asker.answers() == [[1, 1, None, [b"value", "v1"]]]
    assert asker.core.take_peer_events() == [(0, "lost", "closed_cut")]
    asker.core.end_peer(0)
    assert asker.core.take_peer_events() == []


def test_what_all_would_say_is_the_answer(asker: Asker) -> None:
    """A value over the limit is so on all owners; the error is relayed unchanged."""
    asker.get(AWAY[0])
    (link,) = asker.links
    assert link.refuse(link.asked(), "TOO_LARGE") == []
    assert asker.answers() == [[1, 1, ["TOO_LARGE", "no", {}], None]]


@pytest.mark.parametrize(
    "answer",
    [
        [1, 0, None, [b"value", "v2"]],
        [1, 0, None, [b"value"]],
        [1, 0, None, [b"value", "v1", 1]],
        [1, 0, None, ["value", "v1"]],
        [1, 0, None, b"value"],
        [1, 0, None, None],
        [1, 0, "error", None],
        [1, 0, ["TOO_LARGE", "text"], None],
        [1, 0, ["TOO_LARGE", "text", {}], b"\xc0"],
        [1, 0, ["TOO_LARGE", "text", {}], [b"value", "v1"]],
        [1, 1 << 25, None, [b"value", "v1"]],
        [0, 0, "get", []],
        [2, "note", []],
    ],
)
def test_who_answers_nonsense_is_not_believed(tmp_path: Path, answer: list[object]) -> None:
    """The connection ends, the client gets none of it, and the next owner is asked at once."""
    asker = Asker(tmp_path, 2)
    asker.get(AWAY[0])
    first, second = asker.links if asker.links[0].has_requests() else reversed(asker.links)
    answer[1] = answer[1] ^ first.asked() if isinstance(answer[1], int) else answer[1]
    assert first.say(msgpack.packb(answer)) == []
    assert first.ends
    first.close()
    second.answer(second.asked(), b"value")
    assert asker.answers() == [[1, 1, None, [b"value", "v1"]]]


def test_half_an_answer_is_none(tmp_path: Path) -> None:
    """A partial answer before a reset is discarded."""
    asker = Asker(tmp_path, 2)
    asker.get(AWAY[0])
    first, second = asker.links if asker.links[0].has_requests() else reversed(asker.links)
    assert first.say(rpc.response(first.asked(), [b"value", "v1"])[:-1]) == []
    first.close()
    second.answer(second.asked(), None)
    assert asker.answers() == [[1, 1, None, [None, "v1"]]]
    assert asker.core.take_peer_events() == [(first.column, "lost", "closed_by_peer")]


def test_silence_has_another_one_asked_as_well(tmp_path: Path) -> None:
    """The first answer wins, the other is dropped, and the silent owner is asked last."""
    asker = Asker(tmp_path, 2)
    asker.get(AWAY[0])
    first, second = asker.links if asker.links[0].has_requests() else reversed(asker.links)
    late = first.asked()
    assert asker.wait(29) == []
    assert second.requests() == []
    assert asker.wait(1) == []
    msgid = second.asked()
    asker.get(AWAY[1], msgid=2)
    second.answer(second.asked(), b"other")
    second.answer(msgid, b"value")
    assert asker.answers() == [[1, 2, None, [b"other", "v1"]], [1, 1, None, [b"value", "v1"]]]
    first.answer(late, b"late")
    assert (asker.answers(), first.ends, asker.count("forward_answers_late")) == ([], False, 1)


def test_the_first_one_asked_may_still_answer(tmp_path: Path) -> None:
    """The first owner's answer counts although a second one was asked."""
    asker = Asker(tmp_path, 2)
    asker.get(AWAY[0])
    first, second = asker.links if asker.links[0].has_requests() else reversed(asker.links)
    asker.wait(30)
    first.answer(first.asked(), b"value")
    assert asker.answers() == [[1, 1, None, [b"value", "v1"]]]
    second.answer(second.asked(), b"value")
    assert asker.answers() == []


def test_an_answer_under_way_has_its_time(tmp_path: Path) -> None:
    """A large value that keeps arriving is waited for, and no other owner is asked."""
    asker = Asker(tmp_path, 2)
    asker.get(AWAY[0])
    first, second = asker.links if asker.links[0].has_requests() else reversed(asker.links)
    frame = rpc.response(first.asked(), [b"x" * 100_000, "v1"])
    for at in range(0, 100_000, 10_000):
        first.say(frame[at : at + 10_000])
        assert asker.wait(29) == []
    first.say(frame[100_000:])
    assert asker.answers() == [[1, 1, None, [b"x" * 100_000, "v1"]]]
    assert second.requests() == []


@pytest.mark.parametrize("method", ["get", "get_many"])
@pytest.mark.parametrize("heard_ms", [1, 25, 200])
def test_an_answer_that_stalls_is_silence(tmp_path: Path, method: str, heard_ms: int) -> None:
    """A stage after the last byte the next owner is asked; the first complete answer counts."""
    asker = Asker(tmp_path, 2)
    subject, value = (AWAY[0], b"x" * 200) if method == "get" else ([AWAY[0]], [b"x" * 200])
    assert asker.client.send(rpc.request(1, method, ["db", subject])) == []
    first, second = asker.links if asker.links[0].has_requests() else reversed(asker.links)
    frame = rpc.response(first.asked(method.encode()), [value, "v1"])
    for at in range(heard_ms):
        first.say(frame[at : at + 1])
        assert asker.wait(1) == []
    assert asker.wait(28) == []
    assert second.requests() == []
    assert asker.wait(1) == []
    msgid = second.asked(method.encode())
    assert asker.wait(29) == []
    second.say(rpc.response(msgid, [value, "v1"]))
    assert asker.answers() == [[1, 1, None, [value, "v1"]]]
    first.say(frame[heard_ms:])
    assert (asker.answers(), first.ends, asker.count("forward_answers_late")) == ([], False, 1)


@pytest.mark.parametrize("method", ["get", "get_many"])
def test_an_answer_that_trickles_has_a_second(asker: Asker, method: str) -> None:
    """A second is the limit if the client gives none."""
    subject, value = (AWAY[0], b"x" * 2000) if method == "get" else ([AWAY[0]], [b"x" * 2000])
    assert asker.client.send(rpc.request(1, method, ["db", subject])) == []
    (link,) = asker.links
    frame = rpc.response(link.asked(method.encode()), [value, "v1"])
    for at in range(999):
        assert link.say(frame[at : at + 1]) == []
        assert asker.wait(1) == []
    assert [(msgid, name) for _, msgid, name, _ in asker.wait(1)] == [(1, None)]


@pytest.mark.parametrize("method", ["get", "get_many"])
def test_an_answer_that_trickles_has_the_clients_time(asker: Asker, method: str) -> None:
    """The client's time limit is exact, though it is not the end of a stage."""
    subject, value = (AWAY[0], b"x" * 200) if method == "get" else ([AWAY[0]], [b"x" * 200])
    assert asker.client.send(rpc.request(1, method, ["db", subject, {"timeout_ms": 100}])) == []
    (link,) = asker.links
    frame = rpc.response(link.asked(method.encode()), [value, "v1"])
    for at in range(99):
        assert link.say(frame[at : at + 1]) == []
        assert asker.wait(1) == []
    handed = asker.wait(1)
    assert [(msgid, name, msgpack.unpackb(report)[4]) for _, msgid, name, report in handed] == [(1, None, 100)]
    assert link.say(frame[99:]) == []
    assert (asker.answers(), link.ends, asker.count("forward_answers_late")) == ([], False, 1)


def test_given_up_in_time_with_a_report(asker: Asker) -> None:
    """At the node's or the request's limit Python gets a report of the owners that were asked."""
    asker.get(AWAY[0])
    asker.get(AWAY[1], msgid=2, timeout_ms=10)
    (_, msgid, method, report), *none = asker.wait(10)
    assert (msgid, method, none) == (2, None, [])
    (asked, version, partition, rounds, elapsed_ms, peers) = msgpack.unpackb(report)
    assert (asked, version, partition) == (["db", AWAY[1]], b"v1", partition_of(AWAY[1]))
    assert (rounds, elapsed_ms, peers) == (1, 10, [[b"peer0:1", "asked"]])
    assert asker.wait(989) == []  # An owner that is only silent has the default of `timeout_ms`.
    ((_, msgid, method, report),) = asker.wait(1)
    assert (msgid, method, msgpack.unpackb(report)[5]) == (1, None, [[b"peer0:1", "silent"]])
    assert asker.count("in_flight") == 2
    assert asker.client.driver.reply(asker.client.handle, 1, rpc.response(1, None))


def test_how_long_it_took_is_kept_apart(asker: Asker) -> None:
    """The time runs from the client's request to its answer; a batch counts once."""
    asker.get(AWAY[0])
    asker.client.send(rpc.request(2, "get_many", ["db", AWAY[:3]]))
    asker.wait(7)
    (_, one, _, _), (_, many, _, _) = asker.links[0].requests()
    assert isinstance(one, int)
    assert isinstance(many, int)
    asker.links[0].answer(one, b"value")
    asker.links[0].say(rpc.response(many, [[None] * 3, "v1"]))
    told = asker.core.latency()
    assert {name: told[name].count for name in told} == {"local": 0, "forwarded": 2, "handed_off": 0}
    assert told["forwarded"].mean == told["forwarded"].maximum == 7_000_000


def test_begins_anew_when_all_were_asked(asker: Asker) -> None:
    """Rounds begin after a pause that doubles."""
    asker.get(AWAY[0])
    (link,) = asker.links
    asked_at = []
    for _ in range(60):
        for _, msgid, _, _ in link.requests():
            assert isinstance(msgid, int)
            asked_at.append(asker.client.now_ms)
            link.refuse(msgid, "NOT_READY")
        asker.wait(1)
    assert asked_at == [1, 2, 4, 8, 16, 32]


def test_planned_anew_after_a_switch(asker: Asker) -> None:
    """A read without a version asks for the version that is active at the next round."""
    asker.get(AWAY[0])
    asker.get(AWAY[1], msgid=2, version="v1")
    (link,) = asker.links
    files: list[SortedFile | None] = [None] * PARTITIONS
    both = [("v1", 0, files, IDENTITY, True), ("v2", 0, files, OTHER, True)]
    asker.core.publish(PublishedTable([("db", "v2", both)]))
    asker.core.set_holder(OTHER, PARTITIONS, 0, ALL)
    for _, msgid, _, _ in link.requests():
        assert isinstance(msgid, int)
        link.refuse(msgid, "NOT_SERVED")
    asker.wait(1)
    asked = {params[1]: (msgid, params[2][b"identity"]) for _, msgid, _, params in link.requests()}
    assert {key: identity for key, (_, identity) in asked.items()} == {AWAY[0]: OTHER, AWAY[1]: IDENTITY}
    link.answer(asked[AWAY[0]][0], b"new", "v2")
    link.answer(asked[AWAY[1]][0], b"old", "v1")
    assert asker.answers() == [[1, 1, None, [b"new", "v2"]], [1, 2, None, [b"old", "v1"]]]


def test_a_late_answer_is_taken_by_a_read_that_waits_for_the_disk(asker: Asker, tmp_path: Path) -> None:
    """The partition has come and is not in memory: the first answer wins, and the owner's connection stays."""
    wanted = dict(enumerate(AWAY[:20]))
    for msgid, key in wanted.items():
        asker.get(key, msgid=msgid)
    (link,) = asker.links
    asked = {params[1]: at for _, at, _, params in link.requests()}
    with pages_come_and_go(1):
        asker.publish(table(make_version(tmp_path, "db", "v1", RECORDS, PARTITIONS).files))
        while asker.count("cold_pages") == 0:  # Then another thread reads the pages.
            asker.client.now_ms += 1
            assert asker.client.now_ms < 80, "no page was cold, and soon all are given up"
            asker.client.driver.expire(asker.client.now_ms)
        for key, at in asked.items():
            link.answer(at, RECORDS[key])
            assert not link.ends
        told = {msgid: result for _, msgid, _, result in asker.answers()}
        assert told == {msgid: [RECORDS[key], "v1"] for msgid, key in wanted.items()}
    assert asker.count("closed_bad_answer") == 0


def test_answered_here_when_its_partition_has_come(asker: Asker) -> None:
    """This node answers a waiting read as soon as it has the partition."""
    asker.get(AWAY[0])
    (link,) = asker.links
    link.refuse(link.asked(), "NOT_READY")
    asker.core.publish(table(asker.files))
    asker.wait(1)
    assert asker.answers() == [[1, 1, None, [RECORDS[AWAY[0]], "v1"]]]


def test_an_id_is_not_used_again_while_its_answer_may_come(asker: Asker) -> None:
    """An answer for a closed client is dropped and does no harm."""
    (link,) = asker.links
    driver, handle = asker.client.driver, asker.client.handle
    for number in range(20):
        asker.get(AWAY[number], msgid=number)
    old = {msgid for _, msgid, _, _ in link.requests()}
    driver.close(handle)
    asker.client.handle = driver.open(1) or 0
    for number in range(20):
        asker.get(AWAY[number], msgid=number)
    new = {msgid for _, msgid, _, _ in link.requests()}
    assert not old & new
    for msgid in old:
        assert isinstance(msgid, int)
        link.answer(msgid, b"old")
    assert (asker.answers(), asker.count("forward_answers_late"), link.ends) == ([], 20, False)
    asker.get(AWAY[20], msgid=20)
    assert asker.count("in_flight") == 21


def test_a_connection_with_too_many_unanswered_is_closed(asker: Asker) -> None:
    """Ids of closed clients stay in use; too many of them end the connection."""
    (link,) = asker.links
    driver = asker.client.driver
    for _ in range(50):
        for number in range(100):
            asker.get(AWAY[number], msgid=number)
        driver.close(asker.client.handle)
        asker.client.handle = driver.open(1) or 0
        if link.ends:
            break
    link.close()
    assert asker.count("closed_abandoned") == 1


def test_local_and_forwarded_reads_stay_here(asker: Asker) -> None:
    """Python answers NOT_SERVED."""
    assert asker.client.hands_off("get", "db", AWAY[0], {"local": True})
    assert asker.client.hands_off("get", "db", AWAY[0], {"forwarded": True, "identity": IDENTITY})
    assert asker.client.hands_off("get", "db", HERE[0], {"forwarded": True, "identity": OTHER})
    assert asker.client.hands_off("get", "db", HERE[0], {"forwarded": True})
    assert asker.client.hands_off("get", "db", HERE[0], {"max_frame": 1 << 20})
    assert asker.client.hands_off("get", "db", HERE[0], {"forwarded": True, "identity": IDENTITY, "max_frame": 0})
    assert asker.client.ask("get", "db", HERE[0], {"local": True}) == [None, [RECORDS[HERE[0]], "v1"]]
    assert asker.links[0].requests() == []


def test_bounded_as_hand_offs_are(tmp_path: Path) -> None:
    """Forwarded reads count as in flight, per connection and in total."""
    asker = Asker(tmp_path, max_in_flight_total=3)
    for number in range(3):
        asker.get(AWAY[number], msgid=number)
    asker.client.send(rpc.request(3, "get", ["db", AWAY[3]]))
    ((_, msgid, error, _),) = asker.answers()
    assert (msgid, error[0]) == (3, "OVERLOADED")


def test_peers_are_wanted_lost_and_forgotten(asker: Asker) -> None:
    """Python is told once of a missing connection that a read needs; a forgotten peer causes no events."""
    (link,) = asker.links
    link.close()
    assert asker.core.take_peer_events() == [(0, "lost", "closed_by_peer")]
    asker.get(AWAY[0])
    asker.get(AWAY[1], msgid=2)
    assert asker.core.take_peer_events() == [(0, "wanted", None)]
    again = asker.link(0)
    asker.wait(2)
    assert len(again.requests()) == 2
    asker.core.forget_peer(0)
    assert again.ends
    again.close()
    assert asker.core.take_peer_events() == []
    with pytest.raises(KeyError):
        asker.core.forget_peer(0)


def test_what_a_peer_does_not_serve_is_told(asker: Asker) -> None:
    """Python gets the error with the peer's active version."""
    (link,) = asker.links
    asker.get(AWAY[0])
    error = ["NOT_SERVED", "gone", {"database": "db", "active": "v2"}]
    link.say(msgpack.packb([1, link.asked(), error, None]))
    assert asker.core.take_peer_events() == [(0, "not_served", msgpack.packb(error))]


def test_questions_of_python(asker: Asker) -> None:
    """Python's questions share the connection with reads; a timeout or a loss is reported."""
    (link,) = asker.links
    tokens = [asker.core.ask(0, b"serves", msgpack.packb(["db", number]), 50) for number in range(4)]
    assert len({*tokens, 0}) == 5
    ids = [msgid for _, msgid, method, _ in link.requests() if method == b"serves"]
    result, error = {"ready": b"x" * 3000}, ["NOT_READY", "no", {}]
    assert all(isinstance(msgid, int) for msgid in ids)
    link.say(msgpack.packb([1, ids[0], None, result]) + msgpack.packb([1, ids[1], error, None]))
    assert asker.core.take_replies() == [
        (tokens[0], msgpack.packb(result), None),
        (tokens[1], None, msgpack.packb(error)),
    ]
    asker.wait(50)
    assert sorted(asker.core.take_replies()) == [(tokens[2], None, None), (tokens[3], None, None)]
    last = asker.core.ask(0, b"ping", b"\x90", 50)
    link.close()
    assert asker.core.take_replies() == [(last, None, None)]
    assert asker.core.ask(0, b"ping", b"\x90", 50) == 0


def test_what_was_forwarded_amid_gets_that_have_to_wait_is_not_looked_at_again(tmp_path: Path) -> None:
    """With `max_in_flight` reached between local and remote gets, each is answered once."""
    asker = Asker(tmp_path, max_in_flight=2)
    keys = [HERE[0], HERE[1], AWAY[0], AWAY[1]]
    requests = b"".join(rpc.request(number, "get", ["db", key]) for number, key in enumerate(keys))
    assert asker.client.send(requests) == []
    (link,) = asker.links
    for _ in keys:
        for _, msgid, _, params in link.requests():
            link.answer(msgid, RECORDS[params[1]])
        asker.client.driver.run(1)
        asker.client.take()
    answers = sorted(asker.answers())
    assert answers == [[1, number, None, [RECORDS[key], "v1"]] for number, key in enumerate(keys)]
