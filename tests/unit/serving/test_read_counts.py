"""Counts of reads by database, from the loop, other nodes and Python, compared with plain sums."""

from __future__ import annotations

import tempfile
from collections import Counter
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.errors import NotReady
from gossipkv.serving.published import publish
from gossipkv.serving.read_counts import ReadCounts
from gossipkv.storage.sorted_file import SortedFile
from gossipkv.wire import rpc
from tests.unit.serving.asker import ALL, AWAY, HERE, IDENTITY, OTHER, PARTITIONS, RECORDS, Asker, table
from tests.unit.serving.driven import BuiltVersion, Peer, make_core, make_file, one_database

if TYPE_CHECKING:
    from gossipkv.serving._serving import PublishedTable

NAMES = ("requests", "forwarded", "hits", "misses", "value_bytes", "errors")
VALUES = {b"a": b"", b"b": b"x" * 10, b"c": b"y" * 300}
MAX_VALUE = 250


@cache
def small_file() -> SortedFile:
    """Return VALUES in memory: Hypothesis examples cannot share a test's fixtures."""
    with tempfile.TemporaryDirectory() as directory:
        make_file(Path(directory), VALUES).close()
        return SortedFile(next(Path(directory).glob("*.gkv")).read_bytes(), name="small.gkv")


def counts(**counted: int) -> dict[str, int]:
    return {**dict.fromkeys(NAMES, 0), **counted}


def told(asker: Asker) -> dict[str, int]:
    """Return the counts of an asker's database."""
    return asker.published.reads()["db"]


Read = tuple[str, str | None, list[bytes], bool]  # Database, version, keys, and whether the keys are a batch.
Served = set[tuple[str, str]]

READ = st.tuples(st.sampled_from(["d1", "d2"]), st.none() | st.sampled_from(["1", "2"]), st.lists(st.sampled_from(
    [*VALUES, b"q"]), min_size=1, max_size=40), st.booleans())  # fmt: skip
SERVED = st.sets(st.sampled_from([("d1", "1"), ("d1", "2"), ("d2", "1"), ("d2", "2")]))


@given(st.lists(READ | SERVED, max_size=30))
def test_counted_is_what_was_answered(
    steps: list[tuple[str, str | None, list[bytes], bool] | set[tuple[str, str]]],
) -> None:
    """No count of gets and batches is lost when tables change."""
    core = make_core(max_value=MAX_VALUE)
    peer, served = Peer(core), set[tuple[str, str]]()
    expected = {name: Counter[str]() for name in ("d1", "d2")}
    current: PublishedTable | None = None
    for step in steps:
        if isinstance(step, set):
            served = step
            held = sorted(served)
            newest = dict(held)
            current = publish(
                (BuiltVersion(*each, [small_file()]), newest[each[0]] == each[1]) for each in held
            ).table()
            core.publish(current)
            continue
        database, version, keys, many = step
        asked = keys if many else keys[:1]
        options = {} if version is None else {"version": version}
        frame = rpc.request(1, "get_many" if many else "get", [database, asked if many else asked[0], options])
        is_served = (database, version) in served if version else database in dict(served)
        assert bool(peer.send(frame)) is not is_served
        if not is_served:
            peer.driver.reply(peer.handle, 1, rpc.response(1, None))
            peer.take()
            continue
        values = [VALUES.get(key) for key in asked]
        counted = expected[database]
        counted["requests"] += 1
        if any(value is not None and len(value) > MAX_VALUE for value in values):
            counted["errors"] += 1
            continue
        counted["hits"] += len([value for value in values if value is not None])
        counted["misses"] += values.count(None)
        counted["value_bytes"] += sum(len(value or b"") for value in values)
    reads = {} if current is None else current.reads()
    for name, counted in expected.items():
        assert reads.get(name, counts()) == counts(**counted)
    core.publish(publish([]).table())


def test_scans_are_requests(tmp_path: Path) -> None:
    """A page counts as a request, and its records do not count as keys."""
    core = make_core()
    core.publish(published := one_database(tmp_path, VALUES).table())
    peer = Peer(core)
    for _ in range(3):
        peer.ask("scan", "db")
    assert published.reads() == {"db": counts(requests=3)}


def test_answers_of_others(tmp_path: Path) -> None:
    """Values, misses, errors and each key of a batch count; a late answer does not."""
    asker = Asker(tmp_path)
    (link,) = asker.links
    for value in (b"12345", b"", None):
        asker.get(AWAY[0])
        link.answer(link.asked(), value)
        asker.answers()
    assert told(asker) == counts(requests=3, forwarded=3, hits=2, misses=1, value_bytes=5)
    asker.get(AWAY[0])
    link.refuse(link.asked(), "TOO_LARGE")
    assert told(asker)["errors"] == len(asker.answers())
    before = Counter(told(asker))
    assert asker.client.send(rpc.request(1, "get_many", ["db", [HERE[0], AWAY[0], AWAY[1]]])) == []
    wire = link.asked(b"get_many")
    link.say(rpc.response(wire, [[b"x" * 300, None], "v1"]))
    here = len(RECORDS[HERE[0]])
    assert told(asker) == before + Counter(requests=1, forwarded=1, hits=2, misses=1, value_bytes=300 + here)
    asker.answers()
    asker.get(AWAY[0])
    wire = link.asked()
    asker.client.driver.close(asker.client.handle)
    before = Counter(told(asker))
    link.answer(wire, b"late")
    assert told(asker) == before


@pytest.mark.parametrize("many", [False, True])
def test_a_read_that_is_planned_again_counts_once(tmp_path: Path, many: bool) -> None:
    """A read counts once, whether this node or Python answers it in the end."""
    asker = Asker(tmp_path)
    (link,) = asker.links
    method, subject = ("get_many", [AWAY[0]]) if many else ("get", AWAY[0])
    for _ in range(2):
        asker.client.send(rpc.request(1, method, ["db", subject]))
        link.refuse(link.asked(method.encode()), "NOT_READY")
        asker.publish(table(asker.files))
        asker.wait(5)
        assert asker.answers() == [[1, 1, None, [[RECORDS[AWAY[0]]] if many else RECORDS[AWAY[0]], "v1"]]]
        asker.publish(table([asker.files[0], None, None, None]))
    size = len(RECORDS[AWAY[0]])
    assert told(asker) == counts(requests=2, forwarded=2, hits=2, value_bytes=2 * size)
    asker.client.send(rpc.request(1, method, ["db", subject]))
    link.refuse(link.asked(method.encode()), "NOT_READY")
    asker.publish(table([None] * PARTITIONS, active=False, identity=OTHER))
    ((_, _, handed, _),) = asker.wait(5)
    assert handed == method.encode()
    assert told(asker) == counts(requests=2, forwarded=3, hits=2, value_bytes=2 * size)


def test_what_is_given_up_is_a_request(tmp_path: Path) -> None:
    """Python answers and counts the error."""
    asker = Asker(tmp_path)
    asker.get(AWAY[0])
    assert len(asker.wait(1000)) == 1
    assert told(asker) == counts(requests=1, forwarded=1)


def test_what_others_ask_counts_here_too(tmp_path: Path) -> None:
    """A forwarded read counts as a request of the node that answers."""
    asker = Asker(tmp_path)
    options = {"forwarded": True, "identity": IDENTITY}
    asker.core.set_holder(IDENTITY, PARTITIONS, 0, ALL)
    asker.client.ask("get", "db", HERE[0], options)
    assert told(asker) == counts(requests=1, hits=1, value_bytes=len(RECORDS[HERE[0]]))


def test_errors_that_python_says() -> None:
    """An error counts once, with its request if no version was found; an unknown database has no counts."""
    counted = ReadCounts({"db"}.__contains__)
    for database in ("db", "nowhere"):
        for has_version in (False, True):
            with suppress(NotReady), counted.reading(database) as reading:
                if has_version:
                    reading.has_version = True
                raise NotReady("no")
    with counted.reading("db") as reading:
        reading.has_version = True
    counted.answered("db", b"xy", None, b"")
    counted.asked_elsewhere("db")
    here = counts(requests=1, forwarded=1, hits=2, misses=1, value_bytes=2, errors=2)
    assert counted.with_those_of({}) == {"db": here}
    loop = {"db": counts(hits=5), "other": counts(requests=1)}
    assert counted.with_those_of(loop) == {"db": {**here, "hits": 7}, "other": counts(requests=1)}
