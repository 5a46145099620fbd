"""What a page shows, whatever nodes tell."""

from __future__ import annotations

from html.parser import HTMLParser
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.http.page.listing import MOST_ROWS, counted_states, draw
from gossipkv.http.page.placement_map import placement_map
from gossipkv.http.page.rendering import failure, page
from gossipkv.http.page.survey import Survey
from gossipkv.http.page.view import MOST_DRAWN, view
from tests.unit.http.page.nodes import SCENES, large, told

HOSTILE = (
    "<script>alert(1)</script>\"'`&amp;</title><img src=x onerror=alert(2)>\u202e\x00\x1b[31m{{ 7 * 7 }}{% raw %}\udcff"
)
VOID = {"meta", "link", "path", "col"}


def survey(said):
    """What a page would have asked."""
    answers = {name: entries for name, entries in said["local"].items() if entries is not None}
    return Survey(1_795_342_320.0, said["info"], said["members"], said["status"], answers, {"n9": HOSTILE})


class Read(HTMLParser):
    """Elements and text of a page; refuses what is not well nested, and one id that is given twice."""

    def __init__(self, body):
        super().__init__(convert_charrefs=True)
        self.open = []
        self.elements = []
        self.text = []
        self.ids = []
        self.feed(body.decode())
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        """An element begins."""
        self.elements.append((tag, dict(attrs)))
        if "id" in dict(attrs):
            assert dict(attrs)["id"] not in self.ids
            self.ids.append(dict(attrs)["id"])
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        """An element that is empty."""
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        """An element ends."""
        assert self.open.pop() == tag

    def handle_data(self, data):
        """Text."""
        self.text.append(data)


def spoiled(value):
    """The same with every text but what is compared with words replaced by markup."""
    if isinstance(value, dict):
        return {name: found if name in {"state", "active", "hold"} else spoiled(found) for name, found in value.items()}
    if isinstance(value, list):
        return [spoiled(found) for found in value]
    return HOSTILE + value if isinstance(value, str) else value


@pytest.mark.parametrize("scene", SCENES)
def test_every_name_is_escaped(scene):
    """Nothing that a node tells becomes an element, an attribute or a template; it is shown as it is."""
    said = told(scene)
    clean = Read(page(view(survey(said), [])))
    for entry in said["status"].values():
        for version in entry["versions"].values():
            version["error"] = {"message": HOSTILE, "file": HOSTILE}
            version["first_stray"] = {"key": HOSTILE.encode("utf-8", "surrogateescape"), "file": HOSTILE, "offset": 3}
    said["info"] = spoiled(said["info"]) | {"source_error": HOSTILE, "silent": HOSTILE}
    said["members"] = spoiled(said["members"])
    said["status"] = {f"{HOSTILE}{name}": spoiled(entry) for name, entry in said["status"].items()}
    said["local"] = {f"{HOSTILE}{name}": spoiled(entries) for name, entries in said["local"].items()}
    body = page(view(survey(said), []))
    read = Read(body)
    tags = {tag for tag, _ in read.elements}
    assert tags <= {tag for tag, _ in clean.elements} | {"code", "progress", "table", "svg", "ul", "li", "h3"}
    assert [attrs for tag, attrs in read.elements if tag == "script"] == [{"src": "/static/page.js", "defer": None}]
    assert not any(name.startswith("on") or name == "style" for _, attrs in read.elements for name in attrs)
    assert "49" not in "".join(read.text).replace("{{ 7 * 7 }}", "")[:200]
    assert "<script>alert(1)</script>" in "".join(read.text)
    for tag, attrs in read.elements:
        if tag == "a":
            assert attrs["href"].startswith(("/", "#"))
            assert not attrs["href"].startswith("//")


@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize("database", [None, "geo"])
def test_a_page_can_be_read_without_eyes(scene, database):
    """Landmarks, one first heading and no level left out, headers with a scope, words for every picture."""
    said = told(scene)
    if database is not None:
        said["status"] = {database: said["status"][database]}
    read = Read(page(view(survey(said), [], database)))
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
    """Whatever stands where something else belongs."""
    survey = Survey(0.0, {"node": "n1"}, [], {"db": told_of_it}, {"n2": {"db": told_of_it}})
    Read(page(view(survey, [])))


def test_a_large_cluster_takes_little():
    """A hundred nodes and 4,096 partitions: a row for each, in a quarter of a megabyte."""
    body = page(view(survey(large(100, 4096)), []))
    assert len(body) < 250_000
    assert len([tag for tag, _ in Read(body).elements if tag == "tr"]) == 1 + 1 + 2 + 100 + 1 + 100


def test_the_worst_map_is_small_enough_too():
    """Each cell differs from its neighbours, and nothing can be drawn as one."""
    said = large(100, 256)
    stripes = [bytes([0x55] * 32), bytes([0xAA] * 32)]
    for place, owner in enumerate(said["status"]["geo"]["versions"]["2026-11-20"]["owners"]):
        owner["ready"] = {"count": 128, "bitmap": stripes[place % 2]}
        owner["building"] = {"count": 128, "bitmap": stripes[1 - place % 2]}
    assert len(page(view(survey(said), []))) < 1_000_000


def test_many_databases_share_the_room_on_the_overview():
    """Maps of those in trouble come first; the others are on their own pages, and are linked."""
    said = large(60, 16)
    entry = said["status"]["geo"]
    whole = {**entry["versions"]["2026-11-20"], "under_replicated": {"count": 0, "bitmap": b""}}
    said["status"] = {f"db{number}": {**entry, "versions": {"2026-11-20": whole}} for number in range(5)} | {
        "zz": entry
    }
    made = view(survey(said), [])
    drawn = [database.name for database in made.databases if database.placed]
    assert drawn == ["db0", "zz"]
    assert sum(len(version.placement.rows) for database in made.databases for version in database.placed) <= MOST_DRAWN
    assert 'Placement of <a href="/db4/">' in page(made).decode()
    said["status"] = {"db4": said["status"]["db4"]}
    assert view(survey(said), [], "db4").databases[0].placed


def test_very_many_nodes_are_counted():
    """Those that are not just alive with what they have ready are named."""
    said = large(MOST_ROWS + 40, 512)
    version = said["status"]["geo"]["versions"]["2026-11-20"]
    version["under_replicated"] = {"count": 0, "bitmap": b""}
    version["owners"][-1]["state"] = "dead"
    drawn = draw(placement_map(version, []))
    assert (len(drawn.rows), drawn.rows_left_out) == (MOST_ROWS, 40)
    assert drawn.rows[0].state == "dead"
    said["members"][-1]["state"] = "dead"
    made = view(survey(said), [])
    assert (len(made.members), made.members_left_out, made.members[0].state) == (MOST_ROWS, 40, "dead")
    assert "and 40 more" in page(made).decode()


def test_the_verdict_says_the_worst():
    """In a line that changes only when something does."""
    said = {scene: told(scene) for scene in SCENES}
    verdicts = {scene: view(survey(each), []).verdict for scene, each in said.items()}
    assert (verdicts["calm"].level, verdicts["calm"].text) == (
        "well", "All is well. 3 databases, 4 members, all alive.",
    )  # fmt: skip
    assert verdicts["killed"].level == "trouble"
    del said["killed"]["status"]["words"]
    killed = view(survey(said["killed"]), [])
    assert killed.verdict.level == "attention"
    assert killed.verdict.text.endswith("2 databases, 4 members, 1 dead.")
    assert "n3 is dead" in killed.notes


def test_what_cannot_be_read_yet_is_not_well():
    """A database of which no version serves here, though nothing is wrong with it: a first version that is built."""
    said = told("calm")
    for name, text in (("geo", "geo"), ("words", "geo and words")):
        said["status"][name]["active"] = None
        found = view(survey(said), []).verdict
        assert (found.level, found.text) == (
            "attention", f"{text} cannot be read here yet. 3 databases, 4 members, all alive.",
        )  # fmt: skip


@pytest.mark.parametrize("database", [None, "carts"])
def test_tables_have_rows_of_their_own(database):
    """Who holds them and what others lack, on the overview and alone; what takes no writes is trouble."""
    said = told("calm")
    nodes = [
        {"node": "n1", "state": "alive", "partitions": 16, "lag_records": 0, "lag_s": 0.0},
        {"node": HOSTILE, "state": "dead", "partitions": 16, "lag_records": 1234, "lag_s": 3.0},
    ]
    carts = {"kind": "hash", "replication": 2, "partition_count": 16, "nodes": nodes, "unwell": []}
    said["status"] = {"carts": carts} if database else {**said["status"], "carts": carts}
    shown = view(survey(said), [], database)
    text = "".join(Read(page(shown)).text)
    assert "16 of 16" in text
    assert "1,234 records, for 3.0 s" in text
    assert "<script>alert(1)</script>" in text
    assert "no version yet" not in text
    assert shown.verdict.level == "attention"
    carts["unwell"] = [{"partition": "00", "why": "refused"}]
    assert view(survey(said), [], database).verdict.level == "trouble"


def test_members_are_counted_by_state():
    """The worst first."""
    states = ["alive", "alive", "dead", "suspect", "alive"]
    assert counted_states([{"state": state} for state in states]) == "5 members, 1 dead, 1 suspect"
    assert counted_states([{"state": "alive"}]) == "1 member, alive"


def test_a_page_that_is_none_says_why():
    """With the status, and every character escaped."""
    read = Read(failure(502, "The node does not answer", HOSTILE))
    assert HOSTILE[:20] in "".join(read.text)
    assert "HTTP status 502" in "".join(read.text)
