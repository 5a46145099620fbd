"""The content of a page, for all kinds of answers by nodes."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from itertools import pairwise, zip_longest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.http.page.drawing import shapes
from gossipkv.http.page.history import NodeHistory
from gossipkv.http.page.listing import MAX_ROWS, draw
from gossipkv.http.page.placement_map import placement_map
from gossipkv.http.page.rendering import failure, page
from gossipkv.http.page.survey import FoundKey, PageSurvey
from gossipkv.http.page.view import MAX_DRAWN, MAX_SHOWN, LookupForm, view
from gossipkv.placement.partition_set import PartitionSet
from gossipkv.status.codec import decode, decode_list, encode
from gossipkv.status.reports import (
    InfoReport,
    MemberReport,
    PartitionHost,
    TablePartition,
    VersionStatus,
    status_report,
)
from gossipkv.status.verdict import ClusterVerdict, Coming, Reason, verdict_of
from tests.unit.http.page.nodes import SCENES, as_told, judged, large, told, with_table

HOSTILE = (
    "<script>alert(1)</script>\"'`&amp;</title><img src=x onerror=alert(2)>\u202e\x00\x1b[31m{{ 7 * 7 }}{% raw %}\udcff"
)
VOID = {"meta", "link", "path", "col", "input"}


def survey(said, database=None):
    verdict, status, partitions = judged(said), said["status"], ()
    if database is not None:
        verdict, status = verdict.about(database), {database: status[database]}
        partitions = partitions_of(said, database)
    return surveyed(said["info"], said["members"], status, verdict, partitions)


def surveyed(info, members, status, verdict, partitions=()):
    members = decode_list(MemberReport, members)
    info, status = decode(InfoReport, info), status_report(status)
    return PageSurvey(1_795_342_320.0, info, members, status, verdict, tuple(partitions))


def partitions_of(said, table):
    """Yield the partitions of a table with the `measured` size and rate of each."""
    rows = said.get("assigned", {}).get(table, [])
    for number, (hosts, measured) in enumerate(zip_longest(rows, said.get("measured", [])[: len(rows)])):
        size, rate = measured or (None, None)
        told = {"id": 900 + number, "start": b"\xfe%d" % number, "end": b"k%d" % number, "rows": 7}
        yield decode(TablePartition, {**told, "bytes": size, "rate": rate, "hosts": [*map(encode, hosts)]})


class Read(HTMLParser):
    """A parser that collects elements and text, and rejects bad nesting and duplicate ids."""

    def __init__(self, body):
        super().__init__(convert_charrefs=True)
        self.open = []
        self.elements = []
        self.text = []
        self.ids = []
        self.feed(body.decode())
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if "id" in dict(attrs):
            assert dict(attrs)["id"] not in self.ids
            self.ids.append(dict(attrs)["id"])
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def spoiled(value):
    """Return `value` with markup in every text, except in words that the page compares."""
    if isinstance(value, dict):
        return {name: found if name in {"state", "active", "hold"} else spoiled(found) for name, found in value.items()}
    if isinstance(value, list):
        return [spoiled(found) for found in value]
    return HOSTILE + value if isinstance(value, str) else value


@pytest.mark.parametrize("scene", SCENES)
def test_every_name_is_escaped(scene):
    """Text from a node never becomes an element, an attribute or a template; it is shown literally."""
    said = told(scene)
    clean = Read(page(view(survey(said), [])))
    for entry in said["status"].values():
        for version in entry["versions"].values():
            version["error"] = {"message": HOSTILE, "file": HOSTILE}
            version["first_stray"] = {"key": HOSTILE.encode("utf-8", "surrogateescape"), "file": HOSTILE, "offset": 3}
    said["info"] = spoiled(said["info"])
    said["members"] = spoiled(said["members"])
    names = {name: f"{HOSTILE}{name}" for name in said["status"]}
    said["status"] = {names[name]: spoiled(entry) for name, entry in said["status"].items()}
    reasons = tuple(Reason(level, HOSTILE, None, HOSTILE) for level in ("well", "attention", "trouble"))
    coming = {name: Coming(HOSTILE + "v9", HOSTILE, 0.5, waits=(HOSTILE,)) for name in names.values()}
    silent = {member["node"]: HOSTILE for member in said["members"]}
    verdict = ClusterVerdict(
        HOSTILE, "trouble", HOSTILE, reasons, coming=coming, databases=3, silent=silent, acceptors={HOSTILE: False}
    )
    key, value = HOSTILE.encode("utf-8", "surrogateescape"), HOSTILE.encode("utf-8", "replace")
    found = FoundKey(HOSTILE, key, value, HOSTILE, HOSTILE)
    shown = surveyed(said["info"], said["members"], said["status"], verdict)
    body = page(view(shown, [], None, LookupForm(HOSTILE, HOSTILE, is_hex=False), found))
    read = Read(body)
    tags = {tag for tag, _ in read.elements}
    assert tags <= {tag for tag, _ in clean.elements} | {"code", "progress", "table", "svg", "ul", "li", "h3", "pre"}
    assert [attrs for tag, attrs in read.elements if tag == "script"] == [{"src": "/static/page.js", "defer": None}]
    assert not any(name.startswith("on") or name == "style" for _, attrs in read.elements for name in attrs)
    assert "49" not in "".join(read.text).replace("{{ 7 * 7 }}", "")[:200]
    assert "<script>alert(1)</script>" in "".join(read.text)
    for tag, attrs in read.elements:
        if tag == "a":
            assert attrs["href"].startswith(("/", "#"))
            assert not attrs["href"].startswith("//")


@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize("database", [None, "geo", "carts"])
def test_a_page_can_be_read_without_eyes(scene, database):
    """Landmarks, headings, table headers and text for pictures are complete."""
    read = Read(page(view(survey(with_table(told(scene)), database), [], database)))
    tags = [tag for tag, _ in read.elements]
    for landmark in ("header", "nav", "main", "footer"):
        assert tags.count(landmark) == 1
    levels = [int(tag[1]) for tag in tags if len(tag) == 2 and tag[0] == "h" and tag[1].isdigit()]
    assert levels[0] == levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    for tag, attrs in read.elements:
        if tag == "th":
            assert attrs["scope"] in {"col", "row"}
        if tag == "svg":
            assert attrs.get("aria-hidden") == "true" or attrs["aria-label"]
        if "aria-labelledby" in attrs:
            assert attrs["aria-labelledby"] in read.ids
    assert [attrs["id"] for _, attrs in read.elements if attrs.get("aria-live")] == ["summary"]


@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(max_size=9),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from([
        "versions", "v1", "owners", "nodes", "state", "ready", "building", "bitmap", "count", "runs", "progress",
        "done",
        "error", "message", "partition_count", "missing", "under_replicated", "disputes", "conflicts", "partitions",
        "active", "hold", "node", "first_stray", "kept_by", "scrub", "last_s", "functions", "alike", "function",
    ]), inner, max_size=8),
    max_leaves=40,
))  # fmt: skip
def test_nothing_that_a_node_tells_breaks_a_page(told_of_it):
    """Values of unexpected types give a well-formed page."""
    verdict = verdict_of({"coming": {"db": told_of_it}, "reasons": [told_of_it], "silent": told_of_it})
    Read(page(view(surveyed({"node": "n1"}, [], {"db": told_of_it}, verdict), [])))


def test_a_large_cluster_takes_little():
    """The page of a hundred nodes and 4,096 partitions has a row for each node and at most 250 KB."""
    body = page(view(survey(large(100, 4096)), []))
    assert len(body) < 250_000
    assert len([tag for tag, _ in Read(body).elements if tag == "tr"]) == 1 + 1 + 2 + 100 + 1 + 100


def test_the_worst_map_is_small_enough_too():
    """Every cell differs from its neighbours, so that none can be drawn together."""
    said = large(100, 256)
    stripes = [bytes([0x55] * 32), bytes([0xAA] * 32)]
    for place, owner in enumerate(said["status"]["geo"]["versions"]["2026-11-20"]["owners"]):
        owner["ready"] = {"count": 128, "bitmap": stripes[place % 2]}
        owner["building"] = {"count": 128, "bitmap": stripes[1 - place % 2]}
    assert len(page(view(survey(said), []))) < 1_000_000


def test_many_databases_share_the_room_on_the_overview():
    """Databases in trouble have their maps drawn first; the overview links to the maps that it leaves out."""
    said = large(60, 16)
    entry = said["status"]["geo"]
    whole = {**entry["versions"]["2026-11-20"], "under_replicated": {"count": 0, "bitmap": b""}}
    said["status"] = {f"db{number}": {**entry, "versions": {"2026-11-20": whole}} for number in range(5)} | {
        "zz": entry
    }
    for number in range(5):  # Maps that differ.
        version = said["status"][f"db{number}"]["versions"]["2026-11-20"]
        said["status"][f"db{number}"] = {
            **entry,
            "versions": {"2026-11-20": {**version, "partition_count": 16 + number}},
        }
    made = view(survey(said), [])
    assert [placed.title for placed in made.maps] == ["zz 2026-11-20", "db0 2026-11-20"]
    assert sum(len(placed.drawn.rows) for placed in made.maps) <= MAX_DRAWN
    assert "Further maps are on the pages of the databases: 4" in page(made).decode()
    said["status"] = {"db4": said["status"]["db4"]}
    assert view(survey(said, "db4"), [], "db4").maps[0].title == "db4 2026-11-20"


def test_databases_that_are_placed_alike_share_a_map():
    """A hundred databases have a row each, and one map and one finding, which name the first of them."""
    said = large(3, 16)
    entry = said["status"]["geo"]
    said["status"] = {f"db{number}": entry for number in range(100)}
    made = view(survey(said), [])
    body = page(made).decode()
    assert len(made.databases) == 100
    (placed,) = made.maps
    assert (placed.title.count(","), placed.title.endswith(" and 92 more"), made.maps_left_out) == (7, True, 0)
    assert body.count("Placement of") == 1
    assert "Further maps" not in body


def test_no_map_is_promised_where_there_is_none():
    """The partitions of a first version under construction are unknown; a chart without lines is a sentence."""
    said = told("upgrade")
    entry = said["status"] = {"geo": said["status"]["geo"]}
    del entry["geo"]["versions"]["2026-11-20"]
    entry["geo"]["active"] = None
    assert "Placement of geo" not in page(view(survey(said), [])).decode()
    quiet = decode(InfoReport, {"counters": {}, "latency": {}})
    history = NodeHistory()
    history.add(1.0, quiet)
    history.add(2.0, quiet)
    body = page(view(survey(said), history.intervals())).decode()
    assert "In this time no request was answered." in body
    assert body.count('<div class="plot">') == 1


def test_very_many_nodes_are_counted():
    """Nodes with problems are drawn, and the remaining ones are counted."""
    said = large(MAX_ROWS + 40, 512)
    version = said["status"]["geo"]["versions"]["2026-11-20"]
    version["under_replicated"] = {"count": 0, "bitmap": b""}
    version["owners"][-1]["state"] = "dead"
    drawn = draw(placement_map(decode(VersionStatus, version), []))
    assert (len(drawn.rows), drawn.rows_left_out) == (MAX_ROWS, 40)
    assert drawn.rows[0].state == "dead"
    said["members"][-1]["state"] = "dead"
    made = view(survey(said), [])
    assert (len(made.members), made.members_left_out, made.members[0].report.state) == (MAX_ROWS, 40, "dead")
    assert "and 40 more" in page(made).decode()


def row_of(body, name):
    """Return the class of a database's row, and the text of its first cell."""
    found = re.search(
        rf'<tr role="row" class="first row-(\w+)">\s*<th[^>]*>((?:(?!</th>).)*?)<a href="/{name}/">',
        body.decode(),
        re.DOTALL,
    )
    return found[1], re.sub(r"<[^>]+>", "", found[2]).strip()


def test_the_page_says_the_verdict_and_whose_it_is():
    """The page has the verdict's text, reasons and advice, and the name of the node."""
    said = told("two_killed")
    made = survey(said)
    text = " ".join("".join(Read(page(view(made, []))).text).split())
    assert made.verdict.text in text
    assert all(reason.text.replace("`", "") in text for reason in made.verdict.reasons)
    assert all(line.replace("`", "") in text for line in made.verdict.advice)
    assert "as seen by n1" in text
    assert "All is well. 3 databases, 4 members, all alive." in page(view(survey(told("calm")), [])).decode()


def test_a_database_of_which_nothing_can_be_read_is_red_in_its_own_row():
    said = told("calm")
    version = said["status"]["geo"]["versions"]["2026-11-20"]
    version["missing"] = as_told(PartitionSet.whole(8))
    body = page(view(survey(said), []))
    assert row_of(body, "geo") == ("trouble", "✕trouble")
    assert row_of(body, "words") == ("well", "")


def further_copies(switched_ms):
    """Return a calm cluster in which n4 builds the second copies of a half of `geo`."""
    said = told("calm")
    entry = said["status"]["geo"]
    owner = entry["versions"]["2026-11-20"]["owners"][3]
    owner["ready"], owner["building"] = owner["building"], owner["ready"]
    entry["versions"]["2026-11-20"]["under_replicated"] = owner["building"]
    entry["switched_ms"] = switched_ms
    said["local"]["n4"]["geo"]["versions"]["2026-11-20"] |= {
        "state": "BUILDING", "progress": {"done": 0.5, "remaining_s": 40.0},
    }  # fmt: skip
    return said


def test_second_copies_on_their_way_are_no_warning():
    """Until `reassign_after` they are an information; the map shows ready partitions and the builder."""
    made = view(survey(further_copies(1_000)), [])
    body = page(made).decode()
    assert made.survey.verdict.level == "well"
    assert "more copies are being made, 40 s left: 4 of 8 partitions" in body
    assert "is-attention" not in body
    assert 'class="c-u"' not in body
    assert 'class="c-b"' in body
    assert view(survey(further_copies(90_000)), []).survey.verdict.level == "attention"


@pytest.mark.parametrize("database", [None, "carts"])
def test_tables_have_rows_of_their_own(database):
    """The overview and the table's page show holders, lag and acceptors; a table that takes no writes is in trouble."""
    said = with_table(told("killed"))
    holder = said["status"]["carts"]["nodes"][1]
    holder |= {"lag_records": 1234, "lag_s": 3.0}
    text = "".join(Read(page(view(survey(said, database), [], database))).text)
    assert "4 of 5" in text
    assert "1,234 records, for 3.0 s" in text
    assert "no version yet" not in text
    assert "Decided on by ●\xa0n1, ●\xa0n2, ✕\xa0n3 (no answer)." in text
    said["status"]["carts"]["unwell"] = [{"partition": "00", "why": "refused"}]
    body = page(view(survey(said, database), [], database))
    assert row_of(body, "carts")[0] == "trouble"
    assert b"carts: partition 00: refused" in body


def test_a_table_has_a_map_on_its_own_page():
    """The map shows each node's partitions; the overview has none, nor has a table with an unknown map."""
    said = with_table(told("killed"))
    drawn = view(survey(said, "carts"), [], "carts").table_map
    assert {row.name: row.words for row in drawn.rows} == {
        "n1": "2 under-replicated (1, 4); 2 ready (0, 2)",
        "n2": "1 under-replicated (3); 2 ready (0, 2)",
        "n3": "3 on a node that is dead (1, 3-4)",
    }
    assert "Placement of carts" in page(view(survey(said, "carts"), [], "carts")).decode()
    assert view(survey(said), []).table_map is None
    said["assigned"]["carts"] = []
    assert view(survey(said, "carts"), [], "carts").table_map is None


def test_ranges_are_drawn_with_their_sizes_and_rates():
    """Each range is drawn relative to the largest; unknown values are not drawn."""
    said = with_table(told("calm")) | {"measured": [(1024, 1.5), (0, 0), (None, None), (2048, 6), (512, 12.5)]}
    said["status"]["carts"]["kind"] = "range"
    said["assigned"]["carts"][0][1] = PartitionHost("n2", 1, "LEAVING")
    size, requests = view(survey(said, "carts"), [], "carts").table_map.profiles
    assert (size.name, size.words) == ("size", "3.5 KiB, largest 2.0 KiB (903)")
    assert size.path == "M0 4h9v4h-9zM30 0h9v8h-9zM40 6h9v2h-9z"
    assert (requests.name, requests.words) == ("requests", "20/s, busiest 12/s (904)")
    body = page(view(survey(said, "carts"), [], "carts")).decode()
    assert 'aria-label="size: 3.5 KiB, largest 2.0 KiB (903)"' in body
    assert body.count('class="profile"') == 2
    cells = ("900", "0xfe30", "&#39;k0&#39;", "n1 n2(LEAVING)", "1.0 KiB", "7", "1.5")
    assert [f">{cell}<" in body for cell in cells] == [True] * len(cells)
    assert body.count('data-label="Start"') == 5
    assert "more: <code>" not in body
    said["measured"] = [(size, None) for size, _ in said["measured"]]
    assert [one.name for one in view(survey(said, "carts"), [], "carts").table_map.profiles] == ["size"]
    said["measured"] = [(0, 0)] * 300
    said["measured"][299] = (5, 0)
    said["assigned"]["carts"] = said["assigned"]["carts"] * 60
    size, requests = view(survey(said, "carts"), [], "carts").table_map.profiles
    assert (size.path, requests.path) == ("M1490 0h10v8h-10z", "")  # A band has the largest value of its ranges.
    body = page(view(survey(said, "carts"), [], "carts")).decode()
    assert body.count('data-label="Start"') == MAX_ROWS
    assert "and 44 more: <code>gossipkv table partitions carts</code>" in body


def test_a_table_that_moves_is_drawn_by_states():
    """Proposed, loading and leaving replicas have states of their own; a leaving replica still counts."""
    said = with_table(told("calm"))
    said["assigned"]["carts"] = [
        [PartitionHost("n1", 0, "AVAILABLE"), PartitionHost("n2", 0, "LEAVING"), PartitionHost("n3", 1, "AVAILABLE")],
        [PartitionHost("n1", 0, "AVAILABLE"), PartitionHost("n2", 0, "PROPOSED"), PartitionHost("n3", 1, "AVAILABLE")],
        [
            PartitionHost("n1", 0, "AVAILABLE"),
            PartitionHost("n2", 0, "INITIALIZING"),
            PartitionHost("n3", 1, "AVAILABLE"),
        ],
        [PartitionHost("n1", 0, "AVAILABLE"), PartitionHost("n2", 1, "INITIALIZING")],
        [PartitionHost("n2", 0, "LEAVING")],
        [PartitionHost("n2", 0, "INITIALIZING")],
    ]
    drawn = view(survey(said, "carts"), [], "carts").table_map
    assert {row.name: row.words for row in drawn.rows} == {
        "n1": "1 under-replicated (3); 3 ready (0-2)",
        "n2": "1 proposed (1); 3 initializing (2-3, 5); 2 leaving (0, 4)",
        "n3": "3 ready (0-2)",
    }
    assert drawn.together.words == "1 missing (5); 2 under-replicated (3-4); 3 ready (0-2)"


@pytest.mark.parametrize("partitions", [1, 8, 64, 65, 300])
def test_a_map_fills_its_bar(partitions):
    """The last cell ends at the picture's edge, even if there is only one."""
    whole = as_told(PartitionSet.whole(partitions))
    owner = {"node": "n1", "state": "alive", "ready": whole}
    drawn = draw(placement_map(decode(VersionStatus, {"partition_count": partitions, "owners": [owner]}), []))
    (shape,) = shapes(drawn.together.cells)
    starts = re.findall(r"M(\d+) 0h(\d+)", shape.path)
    assert max(int(x) + int(width) for x, width in starts) == drawn.width


@pytest.mark.parametrize(
    ("value", "shown", "size"),
    [
        (b"Z\xc3\xbcrich", "Zürich", "7 bytes"),
        (b"", "", "0 bytes"),
        (b"a\tb\nc", "a\tb\nc", "5 bytes"),
        (b"\xff\x00\x01", "ff 00 01", "3 bytes"),
        (b"\xff\xfe", "ff fe", "2 bytes"),
        (b"a\x00", "61 00", "2 bytes"),
        (b"x" * 5000, "x" * MAX_SHOWN, f"5,000 bytes, of which the first {MAX_SHOWN:,} are shown"),
        ("é".encode() * 1025, "é" * 1024, f"2,050 bytes, of which the first {MAX_SHOWN:,} are shown"),
        (b"x" + "é".encode() * 1024, "x" + "é" * 1023, f"2,049 bytes, of which the first {MAX_SHOWN:,} are shown"),
    ],
)
def test_a_value_is_shown_as_what_it_is(value, shown, size):
    """Text is shown as text, other values as bytes; a long value is cut."""
    found = FoundKey("geo", b"CH", value, "v1", "n2")
    answer = view(survey(told("calm")), [], None, LookupForm("geo", "CH", is_hex=False), found).answer
    assert (answer.value, answer.size) == (shown, size)
    assert answer.note == "'CH' in geo v1, answered by n2:"


def test_a_page_that_is_none_says_why():
    """The error page has the status and the escaped message."""
    read = Read(failure(502, "The node does not answer", HOSTILE))
    assert HOSTILE[:20] in "".join(read.text)
    assert "HTTP status 502" in "".join(read.text)
