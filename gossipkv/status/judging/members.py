"""Reasons about members, and from each member's report about itself."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from gossipkv.status.judging.tables import SAFELY, placed_away
from gossipkv.status.verdict import ATTENTION, TROUBLE, WELL, Level, Reason
from gossipkv.status.words import some_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from gossipkv.status.judging.merging import Statements

    Link = tuple[str, str]  # The nodes at its ends, in order.

FEW: Final = 2  # In a cluster of this size, a node that misses the other is not considered isolated.

# Each state of absent members has a phrase.
_AWAY: Final = {
    "dead": "dead",
    "left": "stopped, although tables have partitions there",
    "gone": "not known to any node, although tables have partitions there",
    "suspect": "suspect",
}

# Faults that a node reports about itself: key, level, phrase and advice.
_OF_NODES: Final[tuple[tuple[str, Level, str, str | None], ...]] = (
    ("silent", TROUBLE, "{nodes}: silent, so nothing is built or switched there, and other nodes do not see it: {why}",
     "Free space on the disk of {nodes}, or make the data directory writable."),
    ("source_error", TROUBLE, "{nodes}: source: {why}",
     "Make the source readable for every node, or correct the setting `source`."),
    ("tables_closed", TROUBLE, "{nodes}: tables are closed: {why}", "Check the disk and the log of {nodes}."),
    ("tables_lost", TROUBLE, "{nodes}: tables are closed for good: {why}",
     "Put back the table store of {nodes}; only if the store is lost, start with `--forget-tables`."),
    ("log_damage", TROUBLE,
     "{nodes}: tables: log kept for lagging replicas was damaged and dropped: {why}", None),
    ("publish_error", TROUBLE, "{nodes}: other nodes do not learn all that is there: {why}",
     "Raise `max_branch`, or serve fewer databases."),
    ("copies_aside", ATTENTION, "{nodes}: {why} replicas of tables are quarantined",
     "List the quarantined replicas (`gossipkv table quarantine list`)."),
    ("certificate_over", TROUBLE, "{nodes}: the certificate expired at {why}, so clients that check it refuse it",
     "Replace tls_certificate and tls_key of {nodes}."),
    ("certificate_close", ATTENTION, "{nodes}: the certificate expires at {why}",
     "Replace tls_certificate and tls_key of {nodes}."),
    ("draining", ATTENTION, "{nodes}: about to end", None),
)  # fmt: skip

_RELEASES: Final = "Run compatible releases: upgrade all nodes to one release before the next, and go back likewise."

_UUID: Final = re.compile("[0-9a-f]{32}")  # It stands for the name of a node if another node has that name now.

_WORST_LAST: Final = ("alive", "silent", "suspect", "dead")
_OF_TABLES: Final = frozenset(("tables_closed", "tables_lost", "log_damage", "copies_aside"))


def of_members(stated: Statements, states: Mapping[str, str], cut: Mapping[Link, str]) -> Iterator[Reason]:
    """Yield absent members, preceded by the isolation of the asked node."""
    yield from _cut_off(stated, states)
    misfits = {name for report in stated.reports.values() for name in report.misfits}
    removed = removed_nodes(stated)
    for state, words in _AWAY.items():
        if over := sorted(name for name, found in states.items() if found == state and name in removed):
            text = f"{some_text(over)} {'is' if len(over) == 1 else 'are'} {state}, and removed from tables"
            replace = "Give a new node the `shard_id` of a dead node, to replace that node."
            yield Reason(ATTENTION, text, None, replace) if stated.has_datasets else Reason(WELL, text)
        if names := sorted(name for name, found in states.items() if found == state and name not in removed | misfits):
            verb = "is" if len(names) == 1 else "are"
            advice = None if state == "suspect" else _replacing(stated, names)
            yield Reason(ATTENTION, f"{some_text(names)} {verb} {words}", None, advice)
    for (first, second), why in sorted(cut.items()):
        words = f"{first} and {second} do not reach each other, though other nodes reach both: {why}"
        yield Reason(ATTENTION, words, None, f"Check the network between {first} and {second}.")
    silent: dict[str, list[str]] = {}
    for name, why in sorted(stated.silent.items()):
        if states.get(name) not in _AWAY and _link(name, stated.node) not in cut:
            silent.setdefault(why, []).append(name)
    for why, names in silent.items():
        how = "it is" if len(names) == 1 else "they are"
        yield Reason(ATTENTION, f"{some_text(names)} did not answer how {how}: {why}")


def removed_nodes(stated: Statements) -> frozenset[str]:
    """Return the nodes that tables have removed, and that need not start again: they hold nothing, or are lost."""
    told = {name: is_lost for report in stated.reports.values() for name, is_lost in report.removed.items()}
    placed = placed_away(stated.all_tables)
    return frozenset(name for name, is_lost in told.items() if is_lost or name not in placed)


def _replacing(stated: Statements, names: list[str]) -> str:
    """Return advice for nodes that are down, by the data that they may hold."""
    placed = sorted(placed_away(stated.all_tables).keys() & names)
    if placed and _UUID.fullmatch(placed[0]):
        replace = f"`gossipkv node replace {placed[0]} NODE --force --yes`"
        return f"If another node took the name of {placed[0]}, run {replace} with that name for NODE{SAFELY}"
    ways = [f"Start {some_text(names)} again"]
    if stated.has_datasets:
        ways.append(f"replace {names[0]} by a new node with its `shard_id`")
    advice = f"{', or '.join(ways)}."
    if placed:
        lost = placed[0]
        advice += (
            f" If the disk of {lost} is lost, start {lost} with an empty disk (under TLS, with a new certificate), and "
            f"run `gossipkv node replace {lost} {lost} --force --yes`{SAFELY}"
        )
    return advice


def reached(stated: Statements, cut: Mapping[Link, str]) -> frozenset[str]:
    """Return the members that answer the asked node, or a third one if the link to them is cut."""
    return frozenset(stated.reports).union(*(link for link in cut if stated.node in link))


def cut_links(stated: Statements) -> dict[Link, str]:
    """Return the pairs of nodes that do not reach each other though a third one reaches both, and why."""
    reports = {name: report for name, report in stated.reports.items() if not report.isolated}
    away = {name: {*report.unreached, *report.away} for name, report in reports.items()}
    return {
        _link(node, target): why
        for node, report in reports.items()
        for target, why in report.unreached.items()
        if any(target not in away[third] for third in away.keys() - {node, target})
    }


def _link(node: str, target: str) -> Link:
    return min(node, target), max(node, target)


def _cut_off(stated: Statements, states: Mapping[str, str]) -> Iterator[Reason]:
    node, reports = stated.node, stated.reports
    advice = f"Check the network between {node} and the other nodes, and that all have the same key ring."
    if node in reports and reports[node].misfits:
        advice = _RELEASES
    if node in reports and reports[node].isolated and len(states) > FEW:
        text = f"{node} is cut off: it hears from no other node, and its knowledge of them is stale"
        yield Reason(TROUBLE, text, None, advice)
    elif len(states) > FEW and (heard := sum(name in reports for name in states)) * 2 < len(states):
        text = f"{node} hears {heard:,} of {len(states):,} members, so it may be cut off"
        yield Reason(TROUBLE, text, None, advice)
    for name, report in reports.items():
        if report.isolated and name != node:
            text = f"{name} is cut off: it hears from no other node by gossip, though it answers"
            yield Reason(TROUBLE, text, None, advice)


def of_nodes(stated: Statements) -> Iterator[Reason]:
    """Yield the faults that nodes report about themselves; equal ones are merged."""
    for field, level, words, advice in _OF_NODES:
        faults: dict[str, list[str]] = {}  # The nodes with each fault.
        for node, report in stated.reports.items():
            fault = getattr(report, field)
            if fault and field == "copies_aside":
                fault = max(0, fault - _of_tables(stated, node))
            if fault:
                faults.setdefault(str(fault), []).append(node)
        for why, nodes in faults.items():
            names = some_text(nodes)
            text, do = words.format(nodes=names, why=why), advice and advice.format(nodes=names)
            yield Reason(level, text, None, do, is_of_tables=field in _OF_TABLES)
    if twice := _named(report.claimed_twice for report in stated.reports.values()):
        words = f"two nodes are called {twice}; `gossipkv tree duplicates` says where"
        yield Reason(TROUBLE, words, None, f"Give one of the two nodes called {twice} another name (`node`).")
    yield from _misfits(stated)
    if unread := _named(report.unreadable for report in stated.reports.values()):
        words = f"{unread}: some nodes cannot read its statements"
        yield Reason(TROUBLE, words, None, "Upgrade all nodes to one release.")


def _misfits(stated: Statements) -> Iterator[Reason]:
    """Yield the nodes that share no protocol version with those that report them."""
    found: dict[str, tuple[set[str], set[str]]] = {}  # Such nodes, and those that report them, by the versions.
    for node, report in stated.reports.items():
        for name, versions in report.misfits.items():
            names, nodes = found.setdefault(versions, (set(), set()))
            names.add(name)
            nodes.add(node)
    for versions, (names, nodes) in found.items():
        text = f"{some_text(sorted(names))}: {versions} as {some_text(sorted(nodes))}"
        yield Reason(ATTENTION, text, None, _RELEASES)


def _of_tables(stated: Statements, node: str) -> int:
    """Return the number of a node's quarantined copies of existing tables, which are reported with the tables."""
    return sum(by_node[node].aside.copies for by_node in stated.tables.values() if node in by_node)


def _named(lists: Iterable[Iterable[str]]) -> str:
    """Return the names that members list, in words; empty if there are none."""
    names = sorted(set().union(*lists))
    return some_text(names) if names else ""


def states_of(stated: Statements) -> dict[str, str]:
    """Return each member's state over all reports: an answering member is alive, else the worst state counts.

    Nodes that hold partitions of tables count as well, even if no node has heard of them since its start.
    """
    states = {name: state if state in _WORST_LAST else "alive" for name, state in stated.members.items()}
    for name, report in stated.reports.items():
        if not report.isolated or name == stated.node:
            for member, state in report.away.items():
                states[member] = max(states.get(member, "alive"), state, key=_rank)
    for member, holder in placed_away(stated.all_tables).items():
        states.setdefault(member, "left" if holder.state == "left" else "gone")
    return {name: "alive" if name in stated.reports else state for name, state in sorted(states.items())}


def _rank(state: str) -> int:
    return _WORST_LAST.index(state) if state in _WORST_LAST else 0
