"""Answers of several versions, scans and steps back, compared with the oracle turn by turn."""

from __future__ import annotations

import io
from collections import Counter
from typing import TYPE_CHECKING

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.loadtest._loadtest import Ledger, Records, RpcDialect, as_records
from gossipkv.loadtest.truth import write_records
from tests.oracle import load_truth as oracle
from tests.unit.loadtest.pages import EDITS, page_of
from tests.unit.loadtest.scripted import Scripted, answer

if TYPE_CHECKING:
    from collections.abc import Mapping

KEYS = [b"%c" % letter for letter in b"abcdefghij"]
TABLE = st.dictionaries(st.sampled_from(KEYS), st.binary(max_size=2), max_size=10)
TABLES = st.dictionaries(st.sampled_from(["1", "2", "10", None]), TABLE, min_size=1, max_size=3)
VERSIONS = st.sampled_from(["1", "2", "10", "3", ""])
VALUE = st.none() | st.binary(max_size=2)
UNKNOWN = b"bb"  # A key that no table has.


def records_of(tables: Mapping[str | None, oracle.Table], *, whole: bool = True) -> Records:
    """Return the records for the extension, with keys in another order than theirs."""
    keys = KEYS[::-1]
    values = {version: [table.get(key) for key in keys] for version, table in tables.items()}
    return Records(keys, values, ordered=True, whole=whole)


@given(TABLES, st.lists(st.tuples(VERSIONS, st.lists(VALUE, min_size=3, max_size=3), st.booleans()), max_size=8))
def test_each_version_has_its_own_values(
    tables: dict[str | None, oracle.Table], answers: list[tuple[str, list[bytes | None], bool]]
) -> None:
    """Values are judged by the version that answered, whichever answered before."""
    expected = oracle.Judged(0)
    with Scripted(dialect=RpcDialect("db", records_of(tables)), batch=3, mix=(1, 1, 0)) as scripted:
        scripted.generator.begin(requests=len(answers) or 1, now_ns=0)
        for version, drawn, is_right in answers:
            (asked,) = scripted.peer.asked()
            table = oracle.table_of(tables, version) or {}
            values = [table.get(key) for key in asked.keys] if is_right else drawn[: len(asked.keys)]
            scripted.peer.send(answer(asked.message_id, [values if asked.method == "get_many" else values[0], version]))
            scripted.turn(1)
            judged = oracle.judge_values(tables, asked.keys, values, version)
            expected = oracle.Judged(*(getattr(expected, name) + getattr(judged, name) for name in vars(judged)))
        names = ("keys", "wrong", "misses", "unchecked")
        assert scripted.counted(*names) == [getattr(expected, name) for name in names]
        found = scripted.generator.ledger.versions_at(0)
        assert {name: requests for name, (requests, *_) in found.items()} == Counter(version for version, *_ in answers)
        assert sum(wrong for _, wrong, _ in found.values()) == expected.wrong
        assert sum(untold for *_, untold in found.values()) == expected.untold


SCANS = st.tuples(VERSIONS, st.integers(1, 12), st.integers(0, 2**32), EDITS)


@given(TABLES, SCANS, st.booleans())
def test_scans_are_compared_record_by_record(
    tables: dict[str | None, oracle.Table], scan: tuple[str, int, int, list[tuple[str, int]]], whole: bool
) -> None:
    """A page with omitted, added, changed, unordered, too few or too many records counts as by the oracle."""
    version, limit, seed, edits = scan
    records = records_of(tables, whole=whole)
    with Scripted(dialect=RpcDialect("db", records), batch=limit, mix=(0, 0, 1), seed=seed) as scripted:
        scripted.generator.begin(requests=1, now_ns=0)
        (asked,) = scripted.peer.asked()
        (start,) = asked.keys
        assert (asked.method, asked.limit) == ("scan", limit)
        table = oracle.table_of(tables, version) or {}
        page, cursor = page_of(table, start, limit, edits, [*KEYS, UNKNOWN])
        judged = oracle.judge_scan(
            tables, version, start=start, limit=limit, records=page, cursor=cursor, others=None if whole else KEYS
        )
        scripted.peer.send(answer(asked.message_id, [[list(record) for record in page], cursor, version]))
        scripted.turn(1)
        assert scripted.counted("answered", "keys", "wrong", "unchecked") == [
            1,
            judged.keys,
            judged.wrong,
            judged.unchecked,
        ]
        assert scripted.generator.ledger.versions_at(0) == {version: (1, judged.wrong, judged.untold)}


@pytest.mark.parametrize(
    ("result", "keys", "wrong"),
    [
        (None, 0, 1), ([[], None], 0, 1), ([b"", None, "1"], 0, 1),
        ([[[b"a"]], None, "1"], 1, 2), ([[[b"a", None]], b"c", "1"], 1, 1), ([[[b"a", b"1"], 7], b"c", "1"], 2, 1),
    ],
)  # fmt: skip
def test_what_is_no_page_is_wrong(result: object, keys: int, wrong: int) -> None:
    """An answer of the wrong shape is wrong, and a missing cursor is an error."""
    records = Records([b"a"], {None: [b"1"]}, ordered=True)
    with Scripted(dialect=RpcDialect("db", records), batch=5, mix=(0, 0, 1)) as scripted:
        scripted.generator.begin(requests=1, now_ns=0)
        (asked,) = scripted.peer.asked()
        scripted.peer.send(answer(asked.message_id, result))
        scripted.turn(1)
        assert scripted.counted("answered", "keys", "wrong") == [1, keys, wrong]


@given(st.lists(st.tuples(st.integers(0, 3), VERSIONS), max_size=30))
def test_steps_back_are_those_of_the_oracle(order: list[tuple[int, str]]) -> None:
    """Four requests are in flight, answered in any order from any version."""
    moments: list[tuple[str, int, str]] = []
    with Scripted([(b"k", b"v")], in_flight=4) as scripted:
        scripted.generator.begin(requests=40, now_ns=0)
        open_ids: list[int] = []
        for place, version in order:
            new = [each.message_id for each in scripted.peer.asked()]
            moments += [("asked", each, "") for each in new]
            open_ids += new
            answered = open_ids.pop(place)
            moments.append(("answered", answered, version))
            scripted.peer.send(answer(answered, [b"v", version]))
            scripted.turn(1)
        assert scripted.counted("steps_back") == [oracle.steps_back(moments)]


def test_versions_of_every_kind_are_counted() -> None:
    """Names beyond the table's room or too long count as `other`, and a missing name as empty."""
    names = ["", "v" * 255, "v" * 256, *(f"v{number}" for number in range(70))]
    with Scripted([(b"k", b"v")]) as scripted:
        scripted.generator.begin(requests=len(names), now_ns=0)
        for name in names:
            (asked,) = scripted.peer.asked()
            scripted.peer.send(answer(asked.message_id, [b"x", name]))
            scripted.turn(1)
        found = scripted.generator.ledger.versions_at(0)
        assert (found[""], found["v" * 255], found["v0"]) == ((1, 1, 0), (1, 1, 0), (1, 1, 0))
        assert found["other"] == (1 + 70 - 61, 1 + 70 - 61, 0)
        assert sum(requests for requests, *_ in found.values()) == len(names)


def test_unknown_values_are_taken_and_told() -> None:
    """A key without a known value may have any value or none, unchecked; an absent key has none."""
    records = Records([b"k", b"no"], {None: [..., None]}, present=1)
    assert (records.record(0), records.record(1), len(records)) == ((b"k", ...), (b"no", None), 2)
    for value, wrong in ((b"anything", 0), (None, 0)):
        with Scripted(dialect=RpcDialect("db", Records([b"k"], {None: [...]}))) as scripted:
            scripted.generator.begin(requests=1, now_ns=0)
            (asked,) = scripted.peer.asked()
            scripted.peer.send(answer(asked.message_id, [value, "1"]))
            scripted.turn(1)
            assert scripted.counted("answered", "wrong", "misses", "unchecked") == [1, wrong, value is None, 1]


@pytest.mark.parametrize(("page", "unchecked"), [([], 0), ([b"a"], 1), ([b"a", b"b"], 2), ([b"0"], 0)])
def test_unknown_values_of_a_scan(page: list[bytes], unchecked: int) -> None:
    """A record with an unknown value may be present or not, but must be in order."""
    records = Records([b"a"], {None: [...]}, ordered=True)
    with Scripted(dialect=RpcDialect("db", records), batch=5, mix=(0, 0, 1)) as scripted:
        scripted.generator.begin(requests=1, now_ns=0)
        (asked,) = scripted.peer.asked()
        scripted.peer.send(answer(asked.message_id, [[[key, b"any"] for key in page], None, "1"]))
        scripted.turn(1)
        assert scripted.counted("keys", "wrong", "unchecked") == [len(page), page == [b"0"], unchecked]


@given(TABLES, TABLE, st.booleans(), st.tuples(EDITS, st.integers(0, 2**32)))
def test_a_version_that_comes_later_is_as_if_it_had_been_there(
    tables: dict[str | None, oracle.Table],
    late: oracle.Table,
    has_stranger: bool,
    scan: tuple[list[tuple[str, int]], int],
) -> None:
    """A late version is judged as if it had been there from the start; an unknown key makes it incomplete."""
    edits, seed = scan
    table = {**late, UNKNOWN: b"new"} if has_stranger else late
    file = io.BytesIO()
    write_records(table, file)
    records = records_of({name: tables[name] for name in tables if name != "9"}, whole=True)
    assert records.adopt(records.prepare("9", file.getvalue()))
    assert not records.adopt(records.prepare("9", file.getvalue()))
    at_once = records_of({**tables, "9": late}, whole=not has_stranger)
    counted = []
    for each in (records, at_once):
        assert [each.record(number, "9") for number in range(len(each))] == [(key, late.get(key)) for key in KEYS[::-1]]
        with Scripted(dialect=RpcDialect("db", each), batch=4, mix=(0, 0, 1), seed=seed) as scripted:
            scripted.generator.begin(requests=1, now_ns=0)
            (asked,) = scripted.peer.asked()
            page, cursor = page_of(table, asked.keys[0], 4, edits, KEYS)
            scripted.peer.send(answer(asked.message_id, [[list(record) for record in page], cursor, "9"]))
            scripted.turn(1)
            counted.append(scripted.counted("keys", "wrong", "unchecked"))
    assert counted[0] == counted[1]


def test_a_version_that_comes_later_may_not_fit() -> None:
    """Unordered records, a truncated file and too many versions are refused."""
    with pytest.raises(ValueError, match="no order"):
        Records([b"k"], {"1": [b"v"]}).prepare("2", b"")
    records = Records([b"k"], {str(number): [b"v"] for number in range(63)}, ordered=True)
    file = io.BytesIO()
    write_records({b"k": b"value"}, file)
    for size in range(1, len(file.getvalue())):
        with pytest.raises(ValueError, match="truncated"):
            records.prepare("new", file.getvalue()[:size])
    assert [records.adopt(records.prepare(name, b"")) for name in ("new", "newer")] == [True, False]
    assert records.record(0, "new") == (b"k", None)


def test_records_are_shared() -> None:
    """Records are used without a copy; pairs become records of any version."""
    records = Records([b"k"], {"1": [b"one"], "2": [b"two"]})
    assert as_records(records) is records
    assert [records.record(0, version)[1] for version in ("1", "2", "3", None)] == [b"one", b"two", b"one", b"one"]
    assert as_records([(b"k", b"v")]).record(0, "7") == (b"k", b"v")


@pytest.mark.parametrize(
    ("keys", "values"),
    [([], {None: []}), ([b"k"], {}), ([b"k"], {None: []}), ([b"k"], {str(number): [None] for number in range(65)})],
)
def test_records_that_do_not_fit_are_refused(keys: list[bytes], values: dict[str | None, list[None]]) -> None:
    """Records without keys or versions, with missing values or with too many versions are refused."""
    with pytest.raises(ValueError, match=r"records|versions|values"):
        Records(keys, values)


def test_tallies_are_by_stage_and_target() -> None:
    """There is one tally for each stage and target."""
    dialect = RpcDialect("db", [(b"k", b"v")])
    ledger = Ledger(2, [dialect, dialect])
    assert len({id(ledger.tally_at(stage, target)) for stage in (0, 1) for target in (0, 1)}) == 4
    assert (ledger.touched(), ledger.versions_at(1)) == ([], {})
    for stage, target in ((2, 0), (0, 2)):
        with pytest.raises(IndexError):
            ledger.tally_at(stage, target)
    with pytest.raises(IndexError):
        ledger.versions_at(2)
    with pytest.raises(ValueError, match="one stage and one target"):
        Ledger(0, [dialect])


def test_news_add_up_to_the_whole() -> None:
    """The reports of all calls add up to the histogram; a second call reports nothing."""
    with Scripted([(b"k", b"v")], in_flight=2) as scripted:
        scripted.generator.begin(rate=1e6, requests=6, now_ns=0)
        counts: Counter[int] = Counter()
        for now in range(0, 60_000_000, 10_000_000):
            scripted.turn(now)
            for asked in scripted.peer.asked():
                scripted.peer.send(msgpack.packb([1, asked.message_id, None, [b"v", "1"]]))
            scripted.turn(now + 5_000_000)
            news = scripted.generator.tally.news()
            assert news is None or (news[0].keys() <= {0})
            for _, _, _, pairs in news[0].values() if news else ():
                counts.update(dict(zip(pairs[::2], pairs[1::2], strict=True)))
            assert scripted.generator.tally.news() is None
            assert scripted.generator.ledger.touched() == []
        assert counts.total() == scripted.generator.tally.histogram.count == 6
        assert scripted.generator.tally.lateness.count == 6


def test_a_load_without_records_is_refused():
    with pytest.raises(ValueError, match="from 1 to 4294967293 records, got 0"):
        Records([], {None: []}, ordered=True)
