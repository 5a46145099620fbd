"""What is told of a cluster: changes, once, and nothing before the first look."""

from __future__ import annotations

from gossipkv.loadtest.watch import View


def member(node: str, state: str) -> dict[str, str]:
    """A line of `members`."""
    return {"node": node, "state": state}


def test_a_member_that_changes_is_told_once() -> None:
    """By the first node that answers; the others are believed when that one is silent."""
    told: list[tuple[str, str, str]] = []
    view = View("geo", lambda *event: told.append(event))
    for number in (0, 1):
        view.hear_answer(number, "addr")
        view.hear_members(number, [member("a", "alive"), member("b", "alive")])
    view.hear_members(0, [member("a", "alive"), member("b", "suspect")])
    view.hear_members(1, [member("a", "suspect"), member("b", "alive")])
    view.hear_silence(0, "addr", "UNAVAILABLE")
    view.hear_silence(0, "addr", "UNAVAILABLE")
    view.hear_members(1, [member("b", "suspect"), member("c", "alive")])
    view.hear_answer(0, "addr")
    assert told == [
        ("member", "b", "alive -> suspect"),
        ("silent", "addr", "UNAVAILABLE"),
        ("member", "a", "alive -> forgotten"),
        ("member", "c", "unknown -> alive"),
        ("answers", "addr", "again"),
    ]


def test_each_node_switches_by_itself() -> None:
    """Of the one database that is asked; a node without a version yet has none."""
    told: list[tuple[str, str, str]] = []
    view = View("geo", lambda *event: told.append(event))
    view.hear_name(0, "n1")
    for version in (None, "1", "1", "2"):
        view.hear_databases(0, "addr", [{"name": "geo", "version": version}, {"name": "other", "version": version}])
    view.hear_databases(1, "addr", [{"name": "geo", "version": "1"}])
    view.hear_databases(1, "addr", [])
    view.hear_databases(1, "addr", [{"name": "geo", "version": "2"}])
    assert told == [
        ("version", "n1 geo", "none -> 1"),
        ("version", "n1 geo", "1 -> 2"),
        ("version", "addr geo", "1 -> 2"),
    ]
