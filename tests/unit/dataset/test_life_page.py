"""The pages on the life of a version and the drawings in the code show exactly the two tables."""

import re
from pathlib import Path

import pytest

from gossipkv.dataset.lifecycle import copy_states, version_states
from gossipkv.dataset.lifecycle.copy_states import CopyState
from gossipkv.dataset.lifecycle.version_states import VersionState, VersionWord


def test_the_pictures_show_the_tables():
    """Each event of a regular life is in its module's drawing."""
    for module, events in (
        (copy_states, ("begin", "finish", "drop")),
        (version_states, ("switch", "supersede", "quiet")),
    ):
        for event in events:
            assert f"──{event}──►" in module.__doc__


DOCS = Path(__file__).parents[3] / "docs"
PAGES = (DOCS / "operators" / "life-of-a-version.md", DOCS / "development" / "version-states.md")
DRAWN = [
    ("The copy", copy_states.NEXT, CopyState.WANTED),
    ("Towards clients", version_states.NEXT, VersionState.KNOWN),
]


def section(title):
    return "".join(page.read_text() for page in PAGES).split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


@pytest.mark.parametrize(("title", "table", "first"), DRAWN)
def test_the_documentation_has_the_tables(title, table, first):
    rows = re.findall(r"^\| (\w+) \| (\w+): [^|]+ \| (\w+) \|$", section(title), re.MULTILINE)
    assert len(rows) == len(table)
    assert {(source, event): target for source, event, target in rows} == {
        (source.value, event.value): target.value for (source, event), target in table.items()
    }


@pytest.mark.parametrize(("title", "table", "first"), DRAWN)
def test_the_documentation_draws_the_tables(title, table, first):
    """Each drawing has the first and the last state of a life."""
    text = section(title)
    drawing = text[text.index("stateDiagram") : text.index("```\n\n|")]
    arrows = re.findall(r"^    (\w+) --> (\w+): (\w+)$", drawing, re.MULTILINE)
    assert len(arrows) == len(table)
    assert {(source, event): target for source, target, event in arrows} == {
        (source.value, event.value): target.value for (source, event), target in table.items()
    }
    assert drawing.count("-->") == len(table) + 2
    assert re.findall(r"\[\*\] --> (\w+)", drawing) == [first.value]


@pytest.mark.parametrize(("title", "states"), [
    ("The copy", CopyState), ("Towards clients", VersionState), ("One word for both", VersionWord),
])  # fmt: skip
def test_the_documentation_explains_each_state(title, states):
    rows = re.findall(r"^\| ([A-Z]+) \| [^|:]+ \|", section(title), re.MULTILINE)
    assert sorted(rows) == sorted(state.value for state in states)
