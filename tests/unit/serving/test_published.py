"""Published versions and their choice; reads that the core answers, and those that it hands off."""

from __future__ import annotations

import functools
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.errors import NotReady, NotServed, UnknownVersion
from gossipkv.serving._serving import PublishedTable
from gossipkv.serving.published import Published, publish
from gossipkv.storage.sorted_file import SortedFile
from tests.unit.serving.driven import NODE, BuiltVersion, Peer, make_core, make_file, make_version, one_database
from tests.world.sorted_files import build

if TYPE_CHECKING:
    from gossipkv.wire.rpc import Value

RECORDS = {b"key%d" % number: b"value%d" % number * (number % 7) for number in range(500)} | {b"": b"empty key"}


def peer_on(*held: tuple[BuiltVersion, bool], **limits: int) -> Peer:
    """Return a peer of a core that serves these versions."""
    core = make_core(**limits)
    core.publish(publish(held).table())
    return Peer(core)


@functools.cache
def small_file() -> SortedFile:
    """Return a file with one record in memory: Hypothesis examples cannot share a test's fixtures."""
    with tempfile.TemporaryDirectory() as directory:
        make_file(Path(directory), {b"k": b"v"}).close()
        return SortedFile(next(Path(directory).glob("*.gkv")).read_bytes(), name="small.gkv")


@pytest.fixture
def peer(tmp_path: Path) -> Peer:
    """Return a peer of a core that serves RECORDS in seven partitions."""
    core = make_core()
    core.publish(one_database(tmp_path, RECORDS, partitions=7).table())
    return Peer(core)


def test_get_answers_every_key(peer: Peer) -> None:
    """Each answer has the version's name; an empty value is empty and a miss is nil."""
    for key, value in RECORDS.items():
        assert peer.ask("get", "db", key) == [None, [value, "v1"]]
    assert peer.ask("get", "db", b"nowhere") == [None, [None, "v1"]]


def test_names_and_keys_as_str_or_bin(peer: Peer) -> None:
    for method in (b"get", "get"):
        for database in (b"db", "db"):
            for key in (b"key9", "key9"):
                peer.send(msgpack.packb([0, 5, method, [database, key]]))
    assert peer.answers() == [[1, 5, None, [RECORDS[b"key9"], "v1"]]] * 8


def test_get_many_keeps_the_order_asked(peer: Peer) -> None:
    keys = [b"key%d" % (number * 37 % 600) for number in range(300)]
    assert peer.ask("get_many", "db", keys) == [None, [[RECORDS.get(key) for key in keys], "v1"]]


@pytest.mark.parametrize("count", [0, 1, 15, 16, 31, 32, 33, 64, 70_000])
def test_get_many_of_any_number(peer: Peer, count: int) -> None:
    """The counts lie around the window, around MessagePack's array heads, and at 0."""
    assert peer.ask("get_many", "db", [b"x"] * count) == [None, [[None] * count, "v1"]]


def test_a_get_tells_who_has_answered(peer: Peer) -> None:
    """With `explain` a get names this node for hits and misses; Python refuses the option for batches."""
    options: list[dict[str, Value]] = [{}, {"version": "v1"}, {"min_version": "v0"}, {"local": True}]
    for key in (b"key5", b"", b"nowhere"):
        for more in options:
            who = {"node": NODE}
            assert peer.ask("get", "db", key, {"explain": True, **more}) == [None, [RECORDS.get(key), "v1", who]]
            for unasked in (False, None):
                assert peer.ask("get", "db", key, {"explain": unasked, **more}) == [None, [RECORDS.get(key), "v1"]]
    assert peer.hands_off("get_many", "db", [b"key5"], {"explain": True})
    assert peer.hands_off("get_many", "db", [b"key5"], {"explain": None})
    assert peer.hands_off("scan", "db", {"explain": True})
    assert peer.hands_off("get", "db", b"key5", {"explain": 1})


def test_an_answer_that_fits_until_it_tells_who(tmp_path: Path) -> None:
    """The node's name counts for the frame."""
    core = make_core(max_frame=2_000, max_queued=100_000)
    core.publish(one_database(tmp_path, {b"k": b"x" * 1_960}).table())
    peer = Peer(core)
    assert peer.ask("get", "db", b"k") == [None, [b"x" * 1_960, "v1"]]
    error, result = peer.ask("get", "db", b"k", {"explain": True})
    assert (error[0], result) == ("TOO_LARGE", None)


@pytest.mark.parametrize("size", [0, 1, 255, 256, 65_535, 65_536, 900_000])
def test_values_of_every_head(tmp_path: Path, size: int) -> None:
    """The values have `bin` heads of 8, 16 and 32 bits."""
    core = make_core()
    core.publish(one_database(tmp_path, {b"k": b"x" * size}).table())
    peer = Peer(core)
    assert peer.ask("get", "db", b"k") == [None, [b"x" * size, "v1"]]
    assert peer.ask("get_many", "db", [b"k", b"q"]) == [None, [[b"x" * size, None], "v1"]]


@pytest.mark.parametrize("msgid", [0, 127, 128, 255, 256, 65_535, 65_536, 2**32 - 1])
def test_message_ids_of_every_size(peer: Peer, msgid: int) -> None:
    assert peer.ask("get", "db", b"key1", msgid=msgid) == [None, [RECORDS[b"key1"], "v1"]]


def test_message_ids_in_other_integer_forms(peer: Peer) -> None:
    """A library may use a wider or signed form for a small number."""
    for form in (b"\xcc\x07", b"\xcd\x00\x07", b"\xce\x00\x00\x00\x07", b"\xcf" + bytes(7) + b"\x07", b"\xd0\x07"):
        peer.send(b"\x94\x00" + form + b"\xa4ping\x90")
    assert peer.answers() == [[1, 7, None, "pong"]] * 5


def test_options_that_are_understood(tmp_path: Path) -> None:
    """`version`, `min_version` and `timeout_ms` are understood as `str` or `bin`, alone or together."""
    old, new = (make_version(tmp_path, "db", name, {b"k": name.encode()}) for name in ("1", "2"))
    peer = peer_on((old, True), (new, False))
    for options, version in [
        ({}, "1"),
        ({"timeout_ms": 0}, "1"),
        ({"version": "2"}, "2"),
        ({b"version": b"1"}, "1"),
        ({"min_version": "1"}, "1"),
        ({"min_version": "10"}, "2"),
        ({"version": "2", "min_version": "1", "timeout_ms": 2**40}, "2"),
    ]:
        assert peer.ask("get", "db", b"k", options) == [None, [version.encode(), version]], options
        assert peer.ask("get_many", "db", [b"k"], options) == [None, [[version.encode()], version]], options


@pytest.mark.parametrize(
    "params",
    [
        [],
        ["db"],
        ["db", b"key1", {}, 1],
        ["nowhere", b"key1"],
        [1, b"key1"],
        ["db", 1],
        ["db", None],
        ["db", b"key1", None],
        ["db", b"key1", []],
        ["db", b"key1", {"unknown": 1}],
        ["db", b"key1", {"version": "v2"}],
        ["db", b"key1", {"version": 1}],
        ["db", b"key1", {"min_version": "v2"}],
        ["db", b"key1", {"version": "v1", "min_version": "v2"}],
        ["db", b"key1", {"timeout_ms": -1}],
        ["db", b"key1", {"timeout_ms": "1"}],
        ["db", b"key1", {"timeout_ms": 2**40 + 1}],
        ["db", b"x" * 65_536],
    ],
)
def test_what_is_not_plain_is_handed_off(peer: Peer, params: list[object]) -> None:
    """Python gets the parameters unchanged, also those of a batch with the key."""
    assert peer.hands_off("get", *params)
    if len(params) > 1:
        assert peer.hands_off("get_many", params[0], [b"key2", params[1]] if params[1] != b"key1" else [], *params[2:])


@pytest.mark.parametrize("keys", [None, b"key1", {}, 5, [b"key1", 5], [b"key1"] * 40 + [None]])
def test_batches_of_other_things_are_handed_off(peer: Peer, keys: object) -> None:
    """All elements must be keys."""
    assert peer.hands_off("get_many", "db", keys)


def test_partitions_that_are_elsewhere(tmp_path: Path) -> None:
    """A read of a missing partition is handed off, also in a batch; others are answered."""
    version = make_version(tmp_path, "db", "v1", RECORDS, 2)
    missing = version.files[1]
    version.files[1] = None
    assert missing is not None
    peer = peer_on((version, True))
    away = next(key for key, _ in missing.scan())
    here = next(key for key in RECORDS if missing.get(key) is None)
    assert peer.ask("get", "db", here) == [None, [RECORDS[here], "v1"]]
    assert peer.hands_off("get", "db", away)
    assert peer.hands_off("get_many", "db", [here] * 40 + [away])


def test_keys_that_the_partition_function_refuses(tmp_path: Path) -> None:
    """`string` needs UTF-8: Python explains that another key has no partition."""
    version = BuiltVersion("db", "v1", [make_file(tmp_path, {b"k": b"v"})], "string")
    peer = peer_on((version, True))
    assert peer.ask("get", "db", b"k") == [None, [b"v", "v1"]]
    assert peer.hands_off("get", "db", b"\xff")


def test_damaged_pages_are_handed_off(tmp_path: Path) -> None:
    """No byte of a damaged page is served; a batch is discarded as a whole."""
    whole = make_file(tmp_path, {b"key%05d" % number: b"v" * 50 for number in range(1000)})
    whole.close()
    path = next(tmp_path.glob("*.gkv"))
    image = bytearray(path.read_bytes())
    at = image.index(b"key00900")
    image[at + 12] ^= 1
    file = SortedFile(bytes(image), name="damaged.gkv")
    peer = peer_on((BuiltVersion("db", "v1", [file]), True))
    assert peer.ask("get", "db", b"key00001") == [None, [b"v" * 50, "v1"]]
    assert peer.hands_off("get", "db", b"key00900")
    assert peer.hands_off("get_many", "db", [b"key%05d" % number for number in range(500)] + [b"key00900"])


def test_answers_larger_than_a_frame(tmp_path: Path) -> None:
    """The error has the limit and no values; a batch that just fits is answered."""
    core = make_core(max_frame=2_000, max_queued=100_000)
    core.publish(one_database(tmp_path, {b"big": b"x" * 1_990, b"half": b"y" * 900}).table())
    peer = Peer(core)
    (code, _, details), result = peer.ask("get", "db", b"big")
    assert (code, result) == ("TOO_LARGE", None)
    assert details["limit"] == 2_000
    assert details["size"] > 2_000
    (code, _, details), result = peer.ask("get_many", "db", [b"half"] * 3)
    assert (code, details, result) == ("TOO_LARGE", {"limit": 2_000}, None)
    assert peer.ask("get_many", "db", [b"half"] * 2) == [None, [[b"y" * 900] * 2, "v1"]]
    assert core.counters()["replies_too_large"] == 2


@given(
    held=st.sets(st.sampled_from(["0", "1", "10", "2", "a", "b", "é"]), min_size=1),
    active=st.none() | st.integers(0, 10),
    version=st.none() | st.sampled_from(["0", "1", "10", "2", "a", "b", "c"]),
    min_version=st.none() | st.sampled_from(["0", "05", "1", "10", "2", "a", "z"]),
)
def test_versions_are_chosen_as_in_python(
    held: set[str], active: int | None, version: str | None, min_version: str | None
) -> None:
    """The loop chooses the version of `PublishedDatabase.choose`, and hands off if Python refuses."""
    names = sorted(held)
    chosen = None if active is None else names[active % len(names)]
    versions = [(BuiltVersion("db", name, [small_file()]), name == chosen) for name in names]
    published = publish(versions)
    peer = Peer(make_core())
    table = published.table()
    peer.core.publish(table)
    options = {name: value for name, value in (("version", version), ("min_version", min_version)) if value is not None}
    try:
        expected = published.databases["db"].choose(version, min_version).name
    except (NotReady, UnknownVersion):
        assert peer.hands_off("get", "db", b"k", options)
    else:
        assert peer.ask("get", "db", b"k", options) == [None, [b"v", expected]]
    peer.core.publish(PublishedTable(()))


def test_counts_by_version(tmp_path: Path) -> None:
    """Requests in total and by name, hits and misses continue when the table is replaced."""
    old, new = (make_version(tmp_path, "db", name, {b"k": b"v"}) for name in ("1", "2"))
    core = make_core()
    peer = Peer(core)
    first = publish([(old, True), (new, False)]).table()
    core.publish(first)
    peer.ask("get", "db", b"k")
    peer.ask("get", "db", b"x", {"version": "1"})
    peer.ask("get_many", "db", [b"k", b"k", b"x"], {"version": "2"})
    peer.hands_off("get", "db", b"k", {"version": "3"})
    first.count("db", "2", by_name=False)
    assert first.requests() == {("db", "1"): (2, 1, 1, 1), ("db", "2"): (2, 1, 2, 1)}
    second = publish([(new, True)]).table()
    core.publish(second)
    peer.ask("get", "db", b"k")
    assert second.requests() == {("db", "2"): (3, 1, 3, 1)}
    assert (second.requests_of("db", "2"), second.requests_of("db", "1"), second.requests_of("q", "1")) == (3, 0, 0)


def test_files_are_pinned_while_published(tmp_path: Path) -> None:
    """A published file cannot be closed until the table is replaced; a second release does nothing."""
    version = make_version(tmp_path, "db", "1", {b"k": b"v"})
    file = version.files[0]
    assert file is not None
    core = make_core()
    table = publish([(version, True)]).table()
    core.publish(table)
    with pytest.raises(BufferError):
        file.close()
    core.publish(table)
    core.publish(PublishedTable(()))
    table.release()
    file.close()


def test_a_table_keeps_its_files_alive(tmp_path: Path) -> None:
    """The core follows pointers into the files, so the table holds references."""
    core = make_core()
    version = make_version(tmp_path, "db", "1", {b"k": b"v"})
    file = version.files[0]
    before = sys.getrefcount(file)
    core.publish(publish([(version, True)]).table())
    assert sys.getrefcount(file) > before
    del file
    version.files.clear()
    assert Peer(core).ask("get", "db", b"k") == [None, [b"v", "1"]]


def test_many_databases_are_found(tmp_path: Path) -> None:
    file = make_file(tmp_path, {b"k": b"v"})
    core = make_core()
    core.publish(PublishedTable([(f"db{number}", "1", [("1", 0, [file], None, True)]) for number in range(1000)]))
    peer = Peer(core)
    for number in range(1000):
        assert peer.ask("get", f"db{number}", b"k") == [None, [b"v", "1"]]
    assert peer.hands_off("get", "db1000", b"k")


@pytest.mark.parametrize(
    ("databases", "message"),
    [
        ([("db", None, []), ("db", None, [])], "published twice"),
        ([("db", "2", [])], "not among the versions that clients may read"),
        ([("db", None, [("1", 0, [], None, True)])], "no partitions"),
        ([("db", "1", [("1", 0, [None], None, False)])], "clients may read"),
        ([("db", None, [("1", 0, [None], b"short", False)])], "has 5 bytes, not 16"),
    ],
)
def test_contradictory_tables_are_refused(databases: list[object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PublishedTable(databases)


def test_a_database_without_an_active_version(tmp_path: Path) -> None:
    """Only requests that name a version are answered."""
    peer = peer_on((make_version(tmp_path, "db", "1", {b"k": b"v"}), False))
    assert peer.hands_off("get", "db", b"k")
    assert peer.ask("get", "db", b"k", {"version": "1"}) == [None, [b"v", "1"]]


def test_compressed_files(tmp_path: Path) -> None:
    """Values are copied before their decompressed block is replaced."""
    records = {b"%06d" % number: b"%06d" % number * 20 for number in range(3000)}
    path = tmp_path / "compressed.gkv"
    build(path, records.items(), compression="lz4")
    file = SortedFile(path)
    file.set_paged(False)  # Otherwise a read would wait for a pager.
    peer = peer_on((BuiltVersion("db", "1", [file]), True))
    keys = [b"%06d" % (number * 7919 % 3100) for number in range(2000)]
    assert peer.ask("get_many", "db", keys) == [None, [[records.get(key) for key in keys], "1"]]


# Published versions in Python --------------------------------------------------------------------------------------


def database(*names: str, active: str | None) -> Published:
    return publish((BuiltVersion("db", name, [None]), name == active) for name in names)


def test_versions_in_order_of_their_bytes() -> None:
    """Names are compared bytewise: 10 precedes 9."""
    published = database("9", "10", "a", "Z", active="9")
    assert [version.name for version in published.databases["db"].versions] == ["10", "9", "Z", "a"]


@pytest.mark.parametrize(
    ("version", "min_version", "chosen"),
    [(None, None, "2"), ("3", None, "3"), (None, "1", "2"), (None, "2", "2"), (None, "25", "3"), ("3", "2", "3")],
)
def test_the_version_that_answers(version: str | None, min_version: str | None, chosen: str) -> None:
    """The active version answers if it suffices, otherwise the oldest sufficient one."""
    assert database("1", "2", "3", "4", active="2").databases["db"].choose(version, min_version).name == chosen


def test_versions_that_are_not_there() -> None:
    """The refusal states the requested and the held versions."""
    held = database("1", "2", active="2").databases["db"]
    with pytest.raises(UnknownVersion, match="db has no version 5 on this node") as unknown:
        held.choose("5", None)
    assert unknown.value.details == {"database": "db", "version": "5", "held": ["1", "2"], "active": "2"}
    with pytest.raises(UnknownVersion, match="version 1 is older than min_version 2"):
        held.choose("1", "2")
    with pytest.raises(NotReady, match="no version at or after 3") as coming:
        held.choose(None, "3")
    expected = {"database": "db", "min_version": "3", "held": ["1", "2"], "active": "2", "coming": True}
    assert coming.value.details == expected
    with pytest.raises(NotReady, match="no version ready"):
        database("1", active=None).databases["db"].choose(None, None)
    assert database("1", active=None).databases["db"].choose(None, "0").name == "1"


def test_partitions_that_are_not_here(tmp_path: Path) -> None:
    """The error names the missing partition; a key that no partition can hold has no file."""
    version = make_version(tmp_path, "db", "1", {b"k": b"v"}, 3)
    held = publish([(version, True)]).databases["db"].versions[0]
    file = held.file_of(b"k")
    assert file is not None
    assert file.get(b"k") == b"v"
    missing = publish([(BuiltVersion("db", "1", [None, None]), True)]).databases["db"].versions[0]
    with pytest.raises(NotServed, match=r"partition [01] of db 1 is not on this node"):
        missing.file_of(b"k")
    text = publish([(BuiltVersion("db", "1", version.files, "string"), True)]).databases["db"].versions[0]
    assert text.file_of(b"\xff") is None


def test_later_changes_of_the_library_do_not_show() -> None:
    """The library empties its lists when it closes a version; a `Published` keeps its own."""
    version = BuiltVersion("db", "1", [None])
    held = publish([(version, True)]).databases["db"].versions[0]
    version.files.clear()
    assert held.files == (None,)
