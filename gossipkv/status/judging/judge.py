"""The one function that judges the overall health."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gossipkv.status.judging.datasets import DatasetReport
from gossipkv.status.judging.members import cut_links, of_members, of_nodes, reached, states_of
from gossipkv.status.judging.tables import acceptors, of_acceptors, of_table
from gossipkv.status.reading import map_of, whole_of
from gossipkv.status.tables import KINDS
from gossipkv.status.verdict import LEVELS, WELL, ClusterVerdict, Coming, Reason, headline, worst

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from gossipkv.status.verdict import MemberReports
    from gossipkv.wire.rpc import Value

STATES: Final = ("dead", "left", "gone", "suspect", "silent", "alive")


def judge(said: MemberReports) -> ClusterVerdict:
    """Merge all members' reports, and judge them.

    Statements about others count unless their author is isolated; from an isolated node no others are available.
    """
    states = states_of(said)
    entries = _by_database(said.reports)
    cut = cut_links(said)
    here = reached(said, cut)
    judged = _Databases(said, states, entries, here)
    answering = acceptors(said.reports, here)
    reasons = [*of_members(said, states, cut), *of_nodes(said), *of_acceptors(answering), *judged.reasons]
    if not entries and not any(report.get("source_error") for report in said.reports.values()):
        empty = "Put a first version at the source, DATABASE/VERSION/FILES, or make a table (`gossipkv table create`)."
        reasons.append(Reason(WELL, "no databases: nothing is built, and the source shows none", None, empty))
    reasons.sort(key=lambda reason: -LEVELS.index(reason.level))  # The sort is stable: an isolated node comes first.
    counted = "1 database" if len(entries) == 1 else f"{len(entries):,} databases"
    return ClusterVerdict(
        said.node,
        worst(reason.level for reason in reasons),
        headline(reasons, judged.coming, f"{counted}, {counted_members(states.values())}", is_sure=not said.silent),
        tuple(reasons),
        judged.coming,
        len(entries),
        {**said.silent},
        answering,
        {node: ends for node, told in said.reports.items() if (ends := whole_of(told.get("certificate_expires_s")))},
    )


class _Databases:
    def __init__(
        self,
        said: MemberReports,
        states: Mapping[str, str],
        entries: Mapping[str, Mapping[str, Mapping[str, Value]]],
        here: Collection[str],
    ) -> None:
        cut_off = {name for name, report in said.reports.items() if report.get("isolated") is True}
        able = {
            name
            for name, report in said.reports.items()
            if not any(report.get(key) for key in ("silent", "source_error", "sourceless", "isolated"))
        }
        self._here = here
        self._shared = frozenset(said.reports.keys() - cut_off) or frozenset(said.reports)
        self._able, self._dead = frozenset(able), frozenset(name for name, state in states.items() if state == "dead")
        self.coming: dict[str, Coming] = {}
        self.reasons = [reason for name, by_node in entries.items() for reason in self._of(name, by_node)]

    def _of(self, name: str, by_node: Mapping[str, Mapping[str, Value]]) -> Iterator[Reason]:
        if _are_plain(by_node):
            return
        datasets = {node: entry for node, entry in by_node.items() if entry.get("kind") not in KINDS}
        tables = {node: entry for node, entry in by_node.items() if entry.get("kind") in KINDS}
        if tables:
            yield from of_table(name, tables, self._here)
        if datasets:
            dataset = DatasetReport(name, datasets, self._shared, self._able, self._dead)
            coming = dataset.coming()
            if coming is not None:
                self.coming[name] = coming
            yield from dataset.reasons(coming)


def _by_database(reports: Mapping[str, Mapping[str, Value]]) -> dict[str, dict[str, dict[str, Value]]]:
    """Return each member's report by database, both in order."""
    found: dict[str, dict[str, dict[str, Value]]] = {}
    for node in sorted(reports):
        for name, entry in map_of(reports[node].get("databases")).items():
            found.setdefault(name, {})[node] = map_of(entry)
    return dict(sorted(found.items()))


def _are_plain(entries: Mapping[str, Mapping[str, Value]]) -> bool:
    """True if all members report only the same active version, so that there is no reason."""
    first = next(iter(entries.values()))
    if first.keys() - {"kind", "active"} or (first.get("active") is None and first.get("kind") not in KINDS):
        return False
    return all(entry == first for entry in entries.values())


def counted_members(states: Iterable[str]) -> str:
    """Return the number of members by state, as in `4 members, 1 dead`."""
    found = list(states)
    members = "1 member" if len(found) == 1 else f"{len(found):,} members"
    counts = {state: found.count(state) for state in STATES}
    others = [f"{counts[state]:,} {state}" for state in STATES if state != "alive" and counts[state]]
    return f"{members}, {', '.join(others)}" if others else f"{members}, {'alive' if len(found) == 1 else 'all alive'}"
