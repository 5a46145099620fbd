"""The methods of a node work through the core, with a fake library."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgpack
import pytest

from gossipkv.errors import Corrupt, SourceError
from gossipkv.node.cluster_methods import FEW_ENTRIES
from gossipkv.serving.published import publish
from gossipkv.storage.sorted_file import SortedFile
from gossipkv.wire.results import DeferredResult
from tests.unit.access.callers import STRANGER
from tests.unit.node.made_up_node import RECORDS, Node, decoded
from tests.unit.serving.driven import BuiltVersion, make_file, make_version
from tests.world.logs import capture_logs

if TYPE_CHECKING:
    from pathlib import Path

    from gossipkv.wire import rpc
    from gossipkv.wire.rpc import Value


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """RECORDS as the active version 1, and a version 2 of one record."""
    first = make_version(tmp_path, "db", "v1", RECORDS, 3)
    second = make_version(tmp_path, "db", "v2", {b"only": b"one"})
    return Node((first, True), (second, False))


def test_reads_that_python_answers(node: Node) -> None:
    """Python answers requests that the core hands off, with the same results."""
    assert node.ask("get", "db", b"key07") == [b"value7", "v1"]
    assert node.ask("get", "db", "nowhere", {"timeout_ms": 5}) == [None, "v1"]
    assert node.ask("get_many", "db", [b"key01", b"x", b"key02"]) == [[b"value1", None, b"value2"], "v1"]
    assert node.ask("get", "db", b"only", {"version": "v2"}) == [b"one", "v2"]
    assert node.counted == [("db", "v1", False)] * 3 + [("db", "v2", True)]


def test_python_tells_who_has_answered(node: Node) -> None:
    """Like the core, `explain` names the node for a single key only."""
    assert node.ask("get", "db", b"key07", {"explain": True}) == [b"value7", "v1", {"node": "n"}]
    assert node.ask("get", "db", b"nowhere", {"explain": True}) == [None, "v1", {"node": "n"}]
    for given in (False, None):
        assert node.ask("get", "db", b"key07", {"explain": given}) == [b"value7", "v1"]


def test_keys_without_a_partition(tmp_path: Path) -> None:
    """A key that the partition function refuses was never stored: a miss."""
    node = Node((BuiltVersion("db", "v1", [make_file(tmp_path, {})], "string"), True))
    assert node.ask("get", "db", b"\xff") == [None, "v1"]
    assert node.ask("get_many", "db", [b"\xff"]) == [[None], "v1"]


def test_scan_page_by_page(node: Node) -> None:
    """Pages have at most the node's limit and one version, and each page is counted."""
    found: list[Value] = []
    options: dict[str, Value] = {}
    while True:
        records, cursor, version = node.ask("scan", "db", options)
        assert version == "v1"
        assert len(records) <= 10
        found += records
        if cursor is None:
            break
        options = {"cursor": cursor}
    assert found == [[key, value] for key, value in sorted(RECORDS.items())]
    assert len(node.counted) == 5


def test_scan_options(node: Node) -> None:
    keys = sorted(RECORDS)
    for options, expected in [
        ({"limit": 3}, keys[:3]),
        ({"limit": 1000}, keys[:10]),
        ({"reverse": True, "limit": 2}, keys[::-1][:2]),
        ({"start": b"key48"}, keys[48:]),
        ({"end": "key02"}, keys[:2]),
        ({"prefix": "key3"}, keys[30:40]),
        ({"prefix": "key3", "start": b"key35", "end": b"key38", "reverse": True}, keys[35:38][::-1]),
        ({"start": b"z"}, []),
    ]:
        records, _, _ = node.ask("scan", "db", options)
        assert [key for key, _ in records] == expected, options
    assert node.ask("scan", "db", {"version": "v2"}) == [[[b"only", b"one"]], None, "v2"]


def test_a_cursor_pins_its_version(node: Node, tmp_path: Path) -> None:
    """A scan stays in its version after a switch, and fails once that version is gone."""
    records, cursor, _ = node.ask("scan", "db", {"limit": 1})
    newer = make_version(tmp_path, "db", "v3", {b"key00": b"new", b"key01": b"new"})
    held = node.reads.published.databases["db"].versions
    old = BuiltVersion("db", "v1", list(held[0].files))
    node.reads.published = publish([(old, False), (newer, True)])
    following, _, version = node.ask("scan", "db", {"limit": 1, "cursor": cursor})
    assert (records + following, version) == ([[b"key00", b"value0"], [b"key01", b"value1"]], "v1")
    assert node.refusal("scan", "db", {"cursor": cursor, "version": "v3"})[0] == "BAD_REQUEST"
    node.reads.published = publish([(newer, True)])
    assert node.refusal("scan", "db", {"cursor": cursor})[0] == "UNKNOWN_VERSION"


@pytest.mark.parametrize(
    ("method", "params", "code", "words"),
    [
        ("get", [], "BAD_REQUEST", "database is missing"),
        ("get", ["db"], "BAD_REQUEST", "key is missing"),
        ("get", ["db", b"x" * 101], "BAD_REQUEST", "101 bytes"),
        ("get", ["db", b"k", {"token": b""}], "BAD_REQUEST", "unknown option token"),
        ("get", ["db", b"k", {"explain": 1}], "BAD_REQUEST", "explain must be true or false"),
        ("get_many", ["db", [b"k"], {"explain": True}], "BAD_REQUEST", "unknown option explain"),
        ("scan", ["db", {"explain": True}], "BAD_REQUEST", "unknown option explain"),
        ("get", ["nowhere", b"k"], "UNKNOWN_DATABASE", "no database nowhere"),
        ("get", ["nowhere", b"k", {"token": b""}], "UNKNOWN_DATABASE", "no database nowhere"),
        ("get", ["empty", b"k"], "NOT_READY", "no version ready"),
        ("get", ["db", b"k", {"version": "v9"}], "UNKNOWN_VERSION", "no version v9"),
        ("get", ["db", b"k", {"min_version": "v9"}], "NOT_READY", "at or after v9"),
        ("get_many", ["db", b"k"], "BAD_REQUEST", "must be an array"),
        ("get_many", ["db", [b"k", 1]], "BAD_REQUEST", r"keys[1] must be bytes"),
        ("get", ["db", b"k", {"timeout_ms": 2**63}], "BAD_REQUEST", "at most 1099511627776, not 9223372036854775808"),
        ("scan", ["db", {"cursor": None, "timeout_ms": 2**40 + 1}], "BAD_REQUEST", "at most 1099511627776"),
        ("scan", ["db", {"limit": 0}], "BAD_REQUEST", "at least 1"),
        ("get", ["db", b"k", {"max_frame": 4096}], "BAD_REQUEST", "max_frame"),
        ("scan", ["db", {"cursor": b"mine"}], "BAD_REQUEST", "cursor"),
        ("scan", ["db", {"reverse": 1}], "BAD_REQUEST", "true or false"),
        ("scan", ["nowhere", {"wait_ms": 0}], "UNKNOWN_DATABASE", "no database"),
        ("ping", [1], "BAD_REQUEST", "takes 0 parameters"),
        ("info", [{}], "BAD_REQUEST", "takes 0 parameters"),
        ("databases", [1], "BAD_REQUEST", "takes 0 parameters"),
        ("status", ["db"], "BAD_REQUEST", "must be a map"),
        ("refresh", [1], "BAD_REQUEST", "must be a string"),
        ("put", ["db", b"k", b"v"], "BAD_REQUEST", "db is a dataset"),
        ("\xff" * 500, [], "UNKNOWN_METHOD", "no method"),
    ],
)
def test_refusals(node: Node, method: str, params: list[Value], code: str, words: str) -> None:
    """Every wrong request has its code and one clear sentence."""
    got, message = node.refusal(method, *params)
    assert got == code
    assert words in message
    assert len(message) < 300


def test_not_ready_has_the_progress(node: Node) -> None:
    """The error has the progress of the database."""
    error = decoded(node.handlers.answer(b"get", msgpack.packb(["empty", b"k"]), STRANGER)).error
    assert error is not None
    assert error.message == "empty has no version ready yet: half of empty is there"
    assert error.details == {"database": "empty", "coming": True, "status": {"empty": {"done": 0.5}}}


def test_damage_is_reported_and_answered(tmp_path: Path) -> None:
    """Each read method answers CORRUPT with file and offset, and the library hears of it."""
    node = Node((broken_version(tmp_path), True))
    for method, params in (
        ("get", ["db", b"key00900"]),
        ("get_many", ["db", [b"key00001", b"key00900"]]),
        ("scan", ["db", {"start": b"key00900"}]),
    ):
        with pytest.raises(Corrupt, match=r"broken\.gkv") as caught:
            node.ask(method, *params)
        assert caught.value.offset > 0
    assert [(database, version) for database, version, _ in node.library.reported] == [("db", "v1")] * 3


def test_damage_that_others_answer_for_is_reported(tmp_path: Path) -> None:
    """The library hears of damage that the serving loop met, unless the version is gone."""
    node = Node((broken_version(tmp_path), True))
    for record in (["db", b"key00900", "v1"], ["db", b"key00001", "v1"], ["db", b"k", "v0"], ["gone", b"k", "v1"]):
        node.reads.look_at(msgpack.packb(record))
    ((database, version, error),) = node.library.reported
    assert (database, version, error.file) == ("db", "v1", "broken.gkv")


def broken_version(directory: Path) -> BuiltVersion:
    """Return `v1` of `db`, in which `key00900` cannot be read."""
    make_file(directory, {b"key%05d" % number: b"v" * 50 for number in range(1000)}).close()
    image = bytearray(next(directory.glob("*.gkv")).read_bytes())
    image[image.index(b"key00900") + 12] ^= 1
    return BuiltVersion("db", "v1", [SortedFile(bytes(image), name="broken.gkv")])


def test_batches_larger_than_a_frame(tmp_path: Path) -> None:
    """TOO_LARGE comes before the values are gathered."""
    version = make_version(tmp_path, "db", "v1", {b"k": b"x" * 3000})
    node = Node((version, True), max_frame=10_000)
    assert node.refusal("get_many", "db", [b"k"] * 10)[0] == "TOO_LARGE"
    assert node.ask("get_many", "db", [b"k"] * 2) == [[b"x" * 3000] * 2, "v1"]


def test_scan_pages_fit_into_a_frame(tmp_path: Path) -> None:
    """A page is bounded in bytes as well."""
    version = make_version(tmp_path, "db", "v1", {b"k%d" % number: b"x" * 1000 for number in range(20)})
    node = Node((version, True), max_frame=10_000, scan_limit=1000)
    records, cursor, _ = node.ask("scan", "db")
    assert len(records) == 4
    assert cursor is not None


def test_info_and_lists(node: Node) -> None:
    """`info` identifies the node and has its counters; errors are counted by code."""
    node.refusal("nothing")
    node.refusal("nothing")
    info = node.ask("info")
    assert isinstance(info, dict)
    counters = {"gets": 3, "scrubbed_versions": 3, "errors_unknown_method": 2, "gossip_dropped_foreign": 2}
    assert info["counters"] == counters
    assert info["name"] == "gossipkv"
    assert (info["version"], info["protocol"], info["epoch"]) == ("1.2.3", 1, 7)
    assert (info["cluster"], info["node"], info["uptime_s"], info["databases"]) == ("c", "n", 1.235, 2)
    assert info["source"] == {"root": "/srv/datasets", "require_success_file": True}
    assert info["claimed_twice"] == ["b"]
    assert (info["members_by_state"], info["process"]) == ({"alive": 0, "left": 1}, {"cpu_s": 1.5})
    assert info["ready"] == {"joined": True, "opened": True, "draining": False}
    local = info["latency"]["local"]
    assert (local["count"], local["max_us"], local["sum_us"]) == (3, 10.0, 30.0)
    assert local["buckets"][:2] == [[8.192, 0], [16.384, 3]]
    assert node.ask("ping") == "pong"
    assert [(one["name"], one["kind"]) for one in node.ask("databases")] == [
        ("db", "dataset"), ("empty", "dataset"), ("orders", "hash")]  # fmt: skip
    told = {"done": 0.5, "isolated": False, "silent": False}
    orders = {"kind": "hash", "isolated": False, "silent": False}
    everything = {"db": told, "empty": told, "orders": orders}  # A table with a dataset's name has no entry.
    assert node.ask("status", {"local": True}) == node.ask("status") == everything
    assert node.ask("status", {"database": "orders"}) == {"orders": orders}
    assert node.ask("status", {"database": "db"}) == {"db": told}
    assert node.library.local == [True, False, False]
    assert node.ask("status", {"bitmaps": True}) == everything
    assert node.library.bitmaps == [False, False, False, True]
    node.cluster.is_isolated = True
    assert node.ask("status", {"database": "db"}) == {"db": {**told, "isolated": True}}
    assert node.ask("info")["isolated"] is True


def test_reads_by_database(node: Node) -> None:
    """The loop's and Python's counts are added; unread databases have zeros, unknown ones no entry."""
    node.ask("get", "db", b"key07")
    node.ask("get_many", "db", [b"key01", b"x", b"key02"])
    for database in ("db", "nowhere"):
        node.refusal("get", database, b"k", {"version": "v9"})
        node.refusal("scan", database, {"limit": 0})
    by_database = node.ask("info")["by_database"]
    assert by_database["db"] == {
        "version": "v1", "requests": 4, "forwarded": 0, "hits": 4, "misses": 1, "value_bytes": 18, "errors": 2,
    }  # fmt: skip
    assert by_database["empty"]["requests"] == 0
    assert by_database.keys() == {"db", "empty"}


def test_what_is_not_published_is_told(node: Node) -> None:
    """The error is nil when all is published."""
    assert node.ask("info")["publish_error"] is None
    node.cluster.trouble = "1 not published"
    assert node.ask("info")["publish_error"] == "1 not published"
    assert node.ask("status", {"database": None}) == node.ask("status")
    assert node.refusal("status", {"database": "nowhere"}) == (
        "UNKNOWN_DATABASE",
        "no database nowhere here or at the source",
    )


async def refresh(node: Node, *params: Value) -> rpc.Response:
    waiting = node.handlers.answer(b"refresh", msgpack.packb(params), STRANGER)
    assert isinstance(waiting, DeferredResult)
    return decoded(await node.handlers.complete(b"refresh", waiting))


async def test_a_silent_node_says_so_and_refuses_to_refresh(node: Node) -> None:
    """`info` has the reason, `status` the fact; `refresh` is refused until the node can write."""
    assert node.ask("info")["silent"] is None
    node.cluster.silence = "/data: Read-only file system"
    assert node.ask("info")["silent"] == "/data: Read-only file system"
    assert node.ask("status", {"database": "db"})["db"]["silent"] is True
    code, message = node.refusal("refresh")
    assert (code, "Read-only file system" in message) == ("NOT_READY", True)
    assert node.refusal("refresh", "db")[0] == "NOT_READY"


async def test_refresh(node: Node) -> None:
    """An unknown database is an error; one without versions is not.  A verdict from before is outdated."""
    assert await refresh(node) == (5, None, {"db": ["v1"]})
    assert node.verdicts.outdated == 1
    assert await refresh(node, None) == (5, None, {"db": ["v1"]})
    assert await refresh(node, "db") == (5, None, {"db": ["v1"]})
    assert await refresh(node, "empty") == (5, None, {})
    error = (await refresh(node, "nowhere")).error
    assert error is not None
    assert error.code == "UNKNOWN_DATABASE"


@pytest.mark.parametrize("failure", [RuntimeError("secret"), SourceError("/a/path of ours")])
async def test_defects_become_internal(node: Node, failure: Exception) -> None:
    """Internal errors are logged with a traceback under an id, and the client gets only the id."""
    node.library.failure = failure
    with capture_logs() as logs:
        error = (await refresh(node)).error
    assert error is not None
    assert error.code == "INTERNAL"
    assert str(failure) not in error.message
    operated, line = logs
    assert (operated["event"], operated["method"]) == ("operated", "refresh")
    assert line["event"] == "internal_error"
    assert line["exc_info"] is failure
    assert error.details == {"id": line["id"]}


def test_results_that_cannot_be_encoded(node: Node) -> None:
    """The connection is answered even if the result or the error cannot be encoded."""
    node.library.told = 1 << 64
    with capture_logs() as logs:
        assert node.refusal("status")[0] == "INTERNAL"
        assert node.refusal("get", "empty", b"k")[0] == "INTERNAL"  # Here the error cannot be encoded.
    assert len(logs) == 2


def test_names_of_files_that_are_not_utf8(node: Node) -> None:
    """Text about a file whose name is no UTF-8 reaches the client as a result and in an error."""
    node.library.told = "part-\udcff"
    assert [node.ask("status")[name]["done"] for name in ("db", "empty")] == ["part-\\udcff"] * 2
    assert node.refusal("get", "empty", b"k")[0] == "NOT_READY"


def test_what_a_node_knows_of_others(node: Node) -> None:
    """Members and published keys are listed by path; the path of the root is empty."""
    assert node.ask("members") == node.cluster.members()
    assert node.ask("children", "nodes") == ["x", "y"]
    assert node.ask("children", "", {"all": True}) == ["x", "y"]
    (entry,) = node.ask("entries", "nodes")
    assert (entry["value"], entry["age_s"], entry["state"]) == (b"\xff", 1.5, "alive")
    assert node.ask("entries", "nodes", {"all": True}) == node.ask("entries", "nodes", {})
    assert node.cluster.asked == [("nodes", False), ("", True), *(("nodes", flag) for flag in (False, True, False))]
    assert (node.ask("info")["epoch"], node.ask("info")["shard_id"]) == (7, "3")
    assert node.ask("info")["counters"]["gossip_dropped_foreign"] == 2


@pytest.mark.parametrize(("method", "params", "said"), [
    ("members", [1], "takes 0 parameters"), ("children", [], "the path is missing"),
    ("children", [7], "the path must be a string"), ("children", ["x" * 1025], "than the 1024 that a path may have"),
    ("children", ["a", "b"], "the options must be a map"), ("entries", ["a", {"al": True}], "did you mean all"),
    ("entries", ["a", {"all": 1}], "must be true or false"), ("gossip", ["a", "b"], "takes 1 parameter"),
    ("gossip", [5], "the request must be bytes"),
])  # fmt: skip
def test_wrong_questions_about_others(node: Node, method: str, params: list[Value], said: str) -> None:
    code, message = node.refusal(method, *params)
    assert code == "BAD_REQUEST"
    assert said in message


async def test_many_entries_take_several_turns(node: Node) -> None:
    """The answer is the same, and equal requests before its start share it."""
    node.cluster.keys_below = FEW_ENTRIES
    assert len(node.ask("entries", "nodes")) == FEW_ENTRIES
    node.cluster.keys_below += 1
    waiting = node.handlers.answer(b"entries", msgpack.packb(["nodes", {"all": True}]), STRANGER)
    assert isinstance(waiting, DeferredResult)
    assert waiting.shared_by == ("entries", "nodes", True)
    result = decoded(await node.handlers.complete(b"entries", waiting)).result
    assert isinstance(result, list)
    assert [entry["name"] for entry in result] == [f"k{number}" for number in range(FEW_ENTRIES + 1)]


def test_a_request_of_another_node(node: Node) -> None:
    """Bytes are answered with bytes, and a refused request gets an error."""
    assert node.ask("gossip", b"\x00\xff") == b"re: \x00\xff"
    assert node.refusal("gossip", b"") == ("UNAVAILABLE", "no request")
