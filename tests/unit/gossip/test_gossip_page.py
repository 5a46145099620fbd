"""The page about gossip matches the code's automaton and constants."""

import re
from pathlib import Path

import pytest

from gossipkv.gossip.member import NEXT, MemberEvidence, MemberState
from gossipkv.gossip.profile import PROFILES

PAGE = (Path(__file__).parents[3] / "docs" / "development" / "gossip.md").read_text(encoding="utf-8")
UNKNOWN = "UNKNOWN"


def name(state):
    return UNKNOWN if state is None else state.name


TABLE = {(name(before), said.name): name(after) for (before, said), after in NEXT.items()}


def test_the_drawing_is_the_automaton():
    """The drawing has exactly these arrows; `[*]` is an unknown member."""
    arrows = re.findall(r"^    (\S+) --> (\S+): (.+)$", PAGE, re.MULTILINE)
    drawn = {
        (before.replace("[*]", UNKNOWN), said): after.replace("[*]", UNKNOWN)
        for before, after, statements in arrows
        for said in statements.split(", ")
    }
    assert drawn == TABLE


def test_every_state_and_statement_is_explained():
    assert re.findall(r"^\| ([A-Z]+) \| [a-z][^|]+ \| (?:shown|hidden)[^|]* \|$", PAGE, re.MULTILINE) == [
        state.name for state in MemberState
    ]
    assert dict(re.findall(r"^\| ([A-Z_]+) \| ([^|]+) \|$", PAGE, re.MULTILINE)) == {
        said.name: said.value for said in MemberEvidence
    }


@pytest.mark.parametrize(
    ("row", "value"),
    [
        ("probe interval", lambda profile: profile.probe_interval_ms / 1000),
        ("probe timeout", lambda profile: profile.probe_timeout_ms / 1000),
        ("members asked to try", lambda profile: profile.indirect_probes),
        ("suspicion, least: times max(1, log10 n)", lambda profile: profile.suspicion_least_ms(1) / 1000),
        ("suspicion, most: times the least", lambda profile: profile.suspicion_most_multiplier),
        ("rumours are told each", lambda profile: profile.gossip_interval_ms / 1000),
        ("to so many members", lambda profile: profile.gossip_members),
        ("an exchange that no difference asked for", lambda profile: profile.exchange_interval_ms / 1000),
        ("dead members and seeds are spoken to each", lambda profile: profile.reconnect_interval_ms / 1000),
    ],
)
def test_the_constants_are_the_profiles_own(row, value):
    """The values follow the order of the heading."""
    (cells,) = re.findall(rf"^\| {re.escape(row)} \| (.+) \|$", PAGE, re.MULTILINE)
    (heading,) = re.findall(r"^\| \| (`lan`.+) \|$", PAGE, re.MULTILINE)
    shown = [float(cell.removesuffix(" s")) for cell in cells.split(" | ")]
    assert shown == [float(value(PROFILES[word.strip("`")])) for word in heading.split(" | ")]
