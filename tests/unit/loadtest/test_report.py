"""The report is well-formed, self-contained and escaped, and begins with the verdict."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from gossipkv.loadtest import limits, report
from gossipkv.loadtest.result import Event, OfTarget, OfVersion, RunTotals, Second, ServerCpu
from tests.unit.loadtest import results
from tests.unit.loadtest.results import HOSTILE

VOID = {"meta", "link", "br", "hr", "img", "input"}
NESTED = {"line", "path", "rect"}  # Elements of SVG, which are written as `<line/>`.


class Page(HTMLParser):
    """A parsed page: its elements, and the text in each."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict]] = []
        self.texts: list[tuple[str, str]] = []
        self.wrong: list[str] = []
        self.feed(text)
        self.close()
        self.wrong += [f"never closed: {tag}" for tag in self.open]

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in NESTED:
            self.wrong.append(f"closes itself: {tag}")

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(f"closed out of turn: {tag}")

    def handle_data(self, data):
        if data.strip():
            self.texts.append((self.open[-1] if self.open else "", data.strip()))

    def said(self):
        return "\n".join(text for tag, text in self.texts if tag != "style")

    def headings(self):
        return [text for tag, text in self.texts if tag == "h2"]


def page(result, texts=()):
    """Return the page of a result with limits."""
    return Page(report.render(result, [limits.parse(text).judge(result) for text in texts]))


def hostile():
    """Return a result with markup, controls or templates in every foreign text."""
    totals = RunTotals(requests=1, keys=1, wrong=1, errors={HOSTILE: 1}, broken={HOSTILE: 1}, duration_s=1.0, rate=1.0)
    latency = results.plain().latency["all"]
    return results.eventful(
        began=HOSTILE,
        command=["gossipkv", HOSTILE],
        plan={HOSTILE: HOSTILE, "database": HOSTILE, "targets": [HOSTILE], "truth": [{HOSTILE: HOSTILE}]},
        machine={HOSTILE: [HOSTILE]},
        totals=totals,
        latency={"all": latency, HOSTILE: latency, "get": latency},
        targets=[OfTarget(HOSTILE, totals, latency, {}, HOSTILE, HOSTILE)],
        events=[Event(1.0, "member", HOSTILE, HOSTILE), Event(2.0, HOSTILE, HOSTILE, HOSTILE)],
        by_version={HOSTILE: OfVersion(1, 1)},
        server_cpu={HOSTILE: ServerCpu(1.0, None)},
        first_wrong=HOSTILE,
        ended=HOSTILE,
    )


EMPTY = results.plain(
    totals=RunTotals(), latency={}, targets=[], steps=[], seconds=[], by_version={}, plan={}, machine={}, command=[]
)
RESULTS = {
    "plain": results.plain(),
    "eventful": results.eventful(),
    "repeated": results.repeated([40.0, 44.0], [900.0, 1100.0]),
    "hostile": hostile(),
    "empty": EMPTY,
    "late": results.plain(lateness=results.latency([9.0] * 100)),
}


@pytest.mark.parametrize("name", RESULTS)
def test_it_is_well_formed(name):
    """Every element is closed in order, and the page is one document."""
    found = page(RESULTS[name], ["p99>1us"])
    assert found.wrong == []
    assert [tag for tag, _ in found.elements if tag in {"html", "head", "body", "main"}] == [
        "html",
        "head",
        "body",
        "main",
    ]


@pytest.mark.parametrize("name", RESULTS)
def test_it_is_self_contained(name):
    """The page has no script and no foreign resource, and a policy that forbids both."""
    text = report.render(RESULTS[name])
    found = Page(text)
    assert not {"script", "link", "img", "iframe", "object", "embed", "use"} & {tag for tag, _ in found.elements}
    named = {key for _, attributes in found.elements for key in attributes}
    assert not {key for key in named if key.startswith("on") or key in {"src", "href", "style", "srcset"}}
    assert "@import" not in text
    assert "url(" not in text
    policies = [attributes for tag, attributes in found.elements if attributes.get("http-equiv")]
    assert [each["content"] for each in policies] == ["default-src 'none'; style-src 'unsafe-inline'"]


def test_everything_is_escaped():
    """Foreign names appear as complete printable text, and make no element."""
    text = report.render(hostile())
    assert "<script>alert" not in text
    assert "\x1b" not in text
    assert "\x00" not in text
    assert "\u202e" not in text
    assert "{{ 7 * 7 }}" in text
    said = Page(text).said()
    assert said.count("</script><script>alert('x')</script>\"'&\\x1b[2J\\x00\\u202e") >= 12


def test_the_verdict_comes_first():
    """Headline and problems come before any section."""
    found = page(results.plain(totals=replace(results.plain().totals, wrong=3), first_wrong="b'k'"), ["p99>1us"])
    said = found.said()
    begin = said.index("3 values of 100 wrong, 1 limit violated.")
    assert begin < said.index("the first: b'k'") < said.index("The requests") < said.index("Latency by percentile")
    assert ("div", {"class": "verdict bad"}) in found.elements


def test_what_there_is_not_has_no_section():
    """Sections for steps and rounds appear only with several of them."""
    assert page(results.plain()).headings() == [
        "The requests",
        "Latency by percentile",
        "Over time",
        "The nodes that answered",
        "How to repeat this test",
    ]
    assert "Step by step" in page(results.eventful()).headings()
    assert "Round by round" in page(RESULTS["repeated"]).headings()


def test_what_was_asked_is_told():
    """A sentence names kinds, database, targets and pace."""
    assert report.asked_of(results.plain()) == (
        "get of database geo, sent to gossipkv://127.0.0.1:7070 in a closed loop over 8 connections with 4 requests "
        "in flight on each: each answer is followed by the next request."
    )
    assert "get and get_many and scan of database geo, sent to 3 targets at 100 /s to 220 /s" in report.asked_of(
        results.eventful()
    )


def test_numbers_stand_in_their_tables():
    """The tables have targets, versions, errors, processors, limits, settings and the command."""
    said = page(results.eventful(), ["p99>50ms", "errors>0.1%"]).said()
    for text in ("gossipkv://10.0.0.2:7070", "n2 0.1.0", "6,500", "UNAVAILABLE", "63 us", "kept", "violated", "zipf"):
        assert f"\n{text}\n" in said
    assert "rate 100, duration_s 12; rate 130, duration_s 12" in said
    fresh = results.plain(plan={"steps": ({"rate": 1.0}, {"rate": 2.0}), "truth": ()})  # A plan in memory has tuples.
    assert "\nrate 1; rate 2\n" in page(fresh).said()
    assert "gossipkv loadtest --node 127.0.0.1:7070 --db geo --truth 'geo truth.tsv'" in page(results.plain()).said()


def test_events_are_marked_and_listed():
    """Each listed event is marked by its number in every plot over time."""
    text = report.render(results.eventful())
    said = Page(text).said()
    assert "20.4 s: Version of n1 geo: 1 -> 2" in said
    assert "44.9 s: Member n3: suspect -> dead" in said
    flags = re.findall(r'class="flagged"[^>]*>([^<]*)<', text)
    assert flags[:3] == ["1-2", "3-4", "5"]
    assert "The load test saw no event in the cluster" in page(results.plain()).said()


def test_percentiles_of_few_requests_are_marked():
    """A star marks percentiles with fewer than ten slower requests, and is explained."""
    said = page(results.plain()).said()
    assert "\n900 us *\n" in said
    assert "fewer than ten requests were slower" in said
    many = results.latency([100.0] * 100)
    many = replace(many, count=10**6)
    assert "*" not in page(results.plain(latency={"all": many, "get": many})).said()


def test_rounds_show_how_far_they_are_apart():
    """Each round has a row, and the spread is a share of the median."""
    said = page(RESULTS["repeated"]).said()
    assert "spread\n9.52 %" in said
    assert "\n44 /s\n" in said


def test_the_templates_are_packed():
    names = {file.name for file in (Path(report.__file__).parent / "templates").iterdir()}
    assert names == {"report.html", "plots.html", "report.css"}


def test_the_last_second_counts_for_what_there_was_of_it():
    """20 answers in the last half second are no drop."""
    found = page(results.plain())
    hints = [text for tag, text in found.texts if tag == "title" and "answered" in text]
    assert hints == ["0 s: answered 40", "1 s: answered 40", "2 s: answered 40"]


def test_what_came_after_the_end_is_no_second():
    """A few answers behind the last whole second are drawn only if errors are among them."""
    late = [Second(t, 40, 0, 0, 100.0, 900.0, 4000.0) for t in range(2)]
    totals = replace(results.plain().totals, duration_s=2.001)
    for second, shown in ((Second(2, 1, 0, 0, 9.0, 9.0, 9.0), False), (Second(2, errors=1), True)):
        found = page(results.plain(seconds=[*late, second], totals=totals))
        hints = [text for tag, text in found.texts if tag == "title" and "answered" in text]
        assert hints == ["0 s: answered 40", "1 s: answered 40", *(["2 s: answered -"] if shown else [])]


def test_a_second_without_answers_is_shown():
    """The rate falls to 0, and no latency is drawn."""
    hints = [text for tag, text in page(results.eventful()).texts if tag == "title"]
    assert "43 s: answered 0, requested 190" in hints
    assert "43 s: p50 -, p99 -, max -" in hints
    refused = replace(results.plain(), seconds=[Second(0, 40, 0, 0, 100.0, 900.0, 4000.0), Second(1, errors=7)])
    hints = [text for tag, text in page(refused).texts if tag == "title"]
    assert "1 s: p50 -, p99 -, max -" in hints
    assert "1 s: errors and lost 7, wrong values 0" in hints
