"""Changes of a cluster are reported once, and none before the first look."""

from __future__ import annotations

from gossipkv.address import Address
from gossipkv.loadtest.watch import WatchView

TARGETS = (Address("localhost", 1), Address("localhost", 2))


def member(node: str, state: str) -> dict[str, str]:
    return {"node": node, "state": state, "address": f"10.0.0.{ord(node)}:7070"}


def test_a_member_that_changes_is_told_once() -> None:
    """The first answering node decides; another one does while it is silent."""
    told: list[tuple[str, str, str]] = []
    view = WatchView("geo", lambda *event: told.append(event), targets=TARGETS)
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
    """Only the loaded database is watched; a node without a version has none."""
    told: list[tuple[str, str, str]] = []
    view = WatchView("geo", lambda *event: told.append(event), targets=TARGETS)
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


def test_a_table_of_the_same_name_is_another_thing() -> None:
    """A table of the same name has no versions, and causes no event."""
    told: list[tuple[str, str, str]] = []
    view = WatchView("geo", lambda *event: told.append(event), targets=TARGETS)
    dataset = {"name": "geo", "kind": "dataset", "version": "1"}
    table = {"name": "geo", "kind": "hash"}
    for order in ([dataset, table], [table, dataset], [table], [dataset, table]):
        view.hear_databases(0, "addr", order)
    assert told == []
    view.hear_databases(0, "addr", [{**dataset, "version": "2"}, table])
    assert told == [("version", "addr geo", "1 -> 2")]


def test_members_that_are_no_target_are_watched_too() -> None:
    """Live members beside the targets are watched once all targets have named themselves."""
    told: list[tuple[str, str, str]] = []
    view = WatchView("geo", lambda *event: told.append(event), targets=TARGETS)
    members = [member("a", "alive"), member("b", "alive"), member("c", "alive"), member("d", "dead")]
    view.hear_name(0, "a")
    view.hear_answer(0, "addr")
    view.hear_members(0, members)
    assert view.take_unwatched() == [], "the second target may be any of them"
    view.hear_name(1, "b")
    view.hear_answer(1, "addr")
    assert view.take_unwatched() == [(2, member("c", "")["address"])]
    assert view.take_unwatched() == []
    view.hear_silence(2, "addr", "UNAVAILABLE")
    assert told == [], "it may be one that cannot be reached from here"
    view.hear_answer(2, "addr")
    view.hear_silence(2, "addr", "UNAVAILABLE")
    assert told == [("silent", "c", "UNAVAILABLE")]
