"""Merging of several members' statements: each one once, with its authors."""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Final, TypeVar

from gossipkv.status.codec import decode
from gossipkv.status.reports import DatasetReport, NodeReport, TableReport, entry, is_table
from gossipkv.status.words import plain, some_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence, Sized

    from gossipkv.status.verdict import MemberReports
    from gossipkv.wire.rpc import Value

R = TypeVar("R")

_NO_DEVIATION: Final = frozenset(("kind", "active"))


@dataclass(frozen=True, slots=True)
class Statements:
    """The members' reports, decoded; databases about which all members report the same active version are left out."""

    node: str  # The node that asked the others, and was asked itself.
    members: Mapping[str, str]  # The state of each member that has not left, as known to that node.
    silent: Mapping[str, str]  # Asked members that did not answer, and the cause.
    reports: dict[str, NodeReport]
    datasets: dict[str, dict[str, DatasetReport]]  # By name, then by member.
    tables: dict[str, dict[str, TableReport]]
    databases: int  # The number of all databases.
    has_datasets: bool

    @property
    def all_tables(self) -> list[TableReport]:
        """Return the reports about tables by all members."""
        return [report for by_node in self.tables.values() for report in by_node.values()]


def statements(heard: MemberReports) -> Statements:
    """Decode the members' reports."""
    reports: dict[str, NodeReport] = {}
    seen_report: Value = None
    for node in sorted(heard.reports):
        if not reports or heard.reports[node] != seen_report:  # Most members report the same.
            seen_report = heard.reports[node]
            report = decode(NodeReport, seen_report)
        reports[node] = report
    by_name: dict[str, dict[str, object]] = {}
    for node, report in reports.items():
        for name, database in report.databases.items() if isinstance(report.databases, dict) else ():
            by_name.setdefault(name, {})[node] = database
    datasets: dict[str, dict[str, DatasetReport]] = {}
    tables: dict[str, dict[str, TableReport]] = {}
    has_datasets = False
    for name, by_node in sorted([(plain(name), by_node) for name, by_node in by_name.items()], key=itemgetter(0)):
        if _are_calm(by_node):
            has_datasets = has_datasets or not is_table(next(iter(by_node.values())))
            continue
        seen, found = None, entry(None)
        for node, database in by_node.items():
            if database != seen:  # Most members state the same.
                seen, found = database, entry(database)
            if isinstance(found, TableReport):
                tables.setdefault(name, {})[node] = found
            else:
                datasets.setdefault(name, {})[node] = found
    has_datasets = has_datasets or bool(datasets)
    return Statements(heard.node, heard.members, heard.silent, reports, datasets, tables, len(by_name), has_datasets)


def _are_calm(by_node: Mapping[str, object]) -> bool:
    """Return True if all members report only the same active version, so that there is no reason."""
    first, *others = by_node.values()
    if not isinstance(first, dict) or first.keys() - _NO_DEVIATION:
        return False
    return (is_table(first) or first.get("active") is not None) and others.count(first) == len(others)


def grouped(statements: Mapping[str, R], field: Callable[[R], object]) -> dict[str, list[str]]:
    """Return the values of a field in words, except empty ones, with the members that state each."""
    found: dict[str, list[str]] = {}
    for node, statement in statements.items():
        if value := field(statement):
            found.setdefault(str(value), []).append(node)
    return found


def at(nodes: Sequence[str], entries: Sized) -> str:
    """Return the authors of a statement, in brackets; empty if all members are."""
    return "" if len(nodes) == len(entries) else f" ({some_text(nodes)})"
