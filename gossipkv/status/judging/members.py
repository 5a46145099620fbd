"""Reasons about members, and from each member's report about itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gossipkv.status.judging.merging import grouped
from gossipkv.status.judging.tables import placed_away
from gossipkv.status.reading import list_of, map_of, maps_of, whole_of
from gossipkv.status.tables import KINDS
from gossipkv.status.verdict import ATTENTION, TROUBLE, Reason
from gossipkv.status.words import plain, some_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gossipkv.status.judging.merging import Entry
    from gossipkv.status.verdict import MemberReports
    from gossipkv.wire.rpc import Value

    Link = tuple[str, str]  # The nodes at its ends, in order.

FEW: Final = 2  # In a cluster of this size, a node that misses the other is not considered isolated.

# Each state of absent members has a phrase.
_AWAY: Final = {
    "dead": "dead",
    "left": "stopped, and to hold partitions of tables",
    "gone": "not heard of by any node, and to hold partitions of tables",
    "suspect": "suspected to be dead",
}

# Faults that a node reports about itself: key, level, phrase and advice.
_OF_NODES: Final = (
    (
        "silent",
        TROUBLE,
        "{nodes}: silent, so nothing is built or switched there, and no node hears of it: {why}",
        "Make room on the disk of {nodes}, or make the data directory writable.",
    ),
    (
        "source_error",
        TROUBLE,
        "{nodes}: source: {why}",
        "Make the source readable for every node, or mend the setting `source`.",
    ),
    (
        "tables_closed",
        TROUBLE,
        "{nodes}: tables are closed: {why}",
        "Look at the disk and the log of {nodes}.",
    ),
    (
        "tables_lost",
        TROUBLE,
        "{nodes}: tables are closed for good: {why}",
        "Put back the store of the tables of {nodes}; only where that is lost, start with `--forget-tables`.",
    ),
    (
        "log_damage",
        TROUBLE,
        "{nodes}: tables: log that was kept for its readers alone is damaged, and was let go of: {why}",
        None,
    ),
    (
        "publish_error",
        TROUBLE,
        "{nodes}: others do not learn of all that is there: {why}",
        "Let nodes publish more (`max_branch`), or have fewer databases.",
    ),
    (
        "copies_aside",
        ATTENTION,
        "{nodes}: {why} copies of tables are set aside",
        "See what was set aside (`gossipkv table quarantine list`).",
    ),
    (
        "certificate_over",
        TROUBLE,
        "{nodes}: the certificate has held until {why}: whoever checks it refuses it",
        "Replace tls_certificate and tls_key of {nodes}.",
    ),
    (
        "certificate_close",
        ATTENTION,
        "{nodes}: the certificate holds until {why}",
        "Replace tls_certificate and tls_key of {nodes}.",
    ),
    ("draining", ATTENTION, "{nodes}: about to end", None),
)  # fmt: skip

_OF_TABLES: Final = frozenset(("tables_closed", "tables_lost", "log_damage", "copies_aside"))


def of_members(said: MemberReports, states: Mapping[str, str], cut: Mapping[Link, str]) -> Iterator[Reason]:
    """Yield absent members, preceded by the isolation of the asked node."""
    yield from _cut_off(said, states)
    for state, words in _AWAY.items():
        if names := sorted(name for name, each in states.items() if each == state):
            verb = "is" if len(names) == 1 else "are"
            do = None if state == "suspect" else _replacing(said, names)
            yield Reason(ATTENTION, f"{some_text(names)} {verb} {words}", None, do)
    for (one, other), why in sorted(cut.items()):
        words = f"{one} and {other} do not reach each other, though other nodes reach both: {why}"
        yield Reason(ATTENTION, words, None, f"Look at the network between {one} and {other}.")
    reasons: dict[str, list[Value]] = {}
    for name, why in sorted(said.silent.items()):
        if states.get(name) not in _AWAY and _link(name, said.node) not in cut:
            reasons.setdefault(why, []).append(name)
    for why, silent in reasons.items():
        yield Reason(
            ATTENTION, f"{some_text(silent)} did not answer how {'it is' if len(silent) == 1 else 'they are'}: {why}"
        )


def _replacing(said: MemberReports, names: list[str]) -> str:
    """Return advice for nodes that are down, by the data that they may hold."""
    databases, ways = _databases(said), [f"Start {some_text(names)} again"]
    if not placed_away(databases).keys().isdisjoint(names):
        ways.append("move the tables of one that is lost for good with `gossipkv node replace NODE NEW --force`")
    if any(entry.get("kind") not in KINDS for entry in databases):
        ways.append("give a new node the `shard_id` of a dead one: it takes its place")
    return f"{', or '.join(ways)}."


def _databases(said: MemberReports) -> list[Entry]:
    entries = (map_of(report.get("databases")).values() for report in said.reports.values())
    return [map_of(entry) for of_member in entries for entry in of_member]


def reached(said: MemberReports, cut: Mapping[Link, str]) -> frozenset[str]:
    """Return the members that answer the asked node, or a third one if the link to them is cut."""
    return frozenset(said.reports).union(*(link for link in cut if said.node in link))


def cut_links(said: MemberReports) -> dict[Link, str]:
    """Return the pairs of nodes that do not reach each other though a third one reaches both, and why."""
    missed = {
        name: map_of(report.get("unreached"))
        for name, report in sorted(said.reports.items())
        if report.get("isolated") is not True
    }
    away = {name: {*others, *map_of(said.reports[name].get("away"))} for name, others in missed.items()}
    return {
        _link(node, other): plain(why)
        for node, others in missed.items()
        for other, why in others.items()
        if any(other not in away[third] for third in away.keys() - {node, other})
    }


def _link(one: str, other: str) -> Link:
    return min(one, other), max(one, other)


def _cut_off(said: MemberReports, states: Mapping[str, str]) -> Iterator[Reason]:
    others = f"Look at the network between {said.node} and the other nodes, and whether they have the same key ring."
    if said.reports.get(said.node, {}).get("isolated") is True and len(states) > FEW:
        yield Reason(
            TROUBLE,
            f"{said.node} is cut off: it hears from no other node, and what it knows of them is stale",
            None,
            others,
        )
    elif len(states) > FEW and (heard := sum(name in said.reports for name in states)) * 2 < len(states):
        text = f"{said.node} hears {heard:,} of {len(states):,} members: it may be cut off"
        yield Reason(TROUBLE, text, None, others)
    for name, report in sorted(said.reports.items()):
        if report.get("isolated") is True and name != said.node:
            yield Reason(
                TROUBLE, f"{name} is cut off: it hears from no other node by gossip, though it answers", None, others
            )


def of_nodes(said: MemberReports) -> Iterator[Reason]:
    """Yield the faults that nodes report about themselves; equal ones are merged."""
    reports = {node: _without_aside(report) for node, report in sorted(said.reports.items())}
    for key, level, words, advice in _OF_NODES:
        for why, nodes in grouped(reports, key).items():
            names = some_text(nodes)
            text, do = words.format(nodes=names, why=why), advice and advice.format(nodes=names)
            yield Reason(level, text, None, do, is_of_tables=key in _OF_TABLES)
    if twice := _named(said, "claimed_twice"):
        words = f"two nodes are called {twice}; `gossipkv tree duplicates` says where"
        yield Reason(TROUBLE, words, None, f"Give one of the two that are called {twice} another name (`node`).")
    if unread := _named(said, "unreadable"):
        words = f"{unread}: not every node can read what is said there"
        yield Reason(TROUBLE, words, None, "Bring all nodes to one release.")


def _without_aside(report: Entry) -> Entry:
    """Return a report without the quarantined copies of existing tables, which are reported with the tables."""
    tables = maps_of(report.get("databases")).values()
    told = sum(whole_of(map_of(entry.get("aside")).get("copies")) or 0 for entry in tables)
    left = max(0, (whole_of(report.get("copies_aside")) or 0) - told)
    return {**report, "copies_aside": left} if told else report


def _named(said: MemberReports, key: str) -> str:
    """Return the names that members list under a key, in words; empty if there are none."""
    names = sorted({plain(name) for report in said.reports.values() for name in list_of(report.get(key))})
    return some_text(names) if names else ""


def states_of(said: MemberReports) -> dict[str, str]:
    """Return each member's state over all reports: an answering member is alive, else the worst state counts.

    Nodes that hold partitions of tables count as well, even if no node has heard of them since its start.
    """
    order = ("alive", "silent", "suspect", "dead")
    states = {name: state if state in order else "alive" for name, state in said.members.items()}
    for name, report in said.reports.items():
        if report.get("isolated") is not True or name == said.node:
            for other, state in map_of(report.get("away")).items():
                states[other] = max(
                    states.get(other, "alive"), plain(state), key=lambda each: order.index(each) if each in order else 0
                )
    for other, told in placed_away(_databases(said)).items():
        states.setdefault(other, "left" if told.get("state") == "left" else "gone")
    return {name: "alive" if name in said.reports else state for name, state in sorted(states.items())}
