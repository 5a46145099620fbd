"""The one function that judges the overall health."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gossipkv.status.judging.datasets import DatasetJudge, member_groups
from gossipkv.status.judging.members import cut_links, of_members, of_nodes, reached, removed_nodes, states_of
from gossipkv.status.judging.merging import statements
from gossipkv.status.judging.tables import acceptors, of_acceptors, of_table
from gossipkv.status.verdict import LEVELS, WELL, ClusterVerdict, Coming, Reason, headline, worst

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from gossipkv.status.judging.merging import Statements
    from gossipkv.status.verdict import MemberReports

STATES: Final = ("dead", "left", "gone", "suspect", "silent", "alive")


def judge(heard: MemberReports) -> ClusterVerdict:
    """Merge all members' reports, and judge them.

    Statements about others count unless their author is isolated; from an isolated node no others are available.
    """
    stated = statements(heard)
    states, cut = states_of(stated), cut_links(stated)
    here = reached(stated, cut)
    of_databases, coming = _of_databases(stated, states, here)
    answering = acceptors(stated.reports, here)
    removed = dict.fromkeys(removed_nodes(stated), "removed")
    acceptors_away = of_acceptors(answering, stated.tables, here, states | removed)
    reasons = [*of_members(stated, states, cut), *of_nodes(stated), *acceptors_away, *of_databases]
    if not stated.databases and not any(report.source_error for report in stated.reports.values()):
        empty = (
            "Publish a first version (DATABASE/VERSION/FILES below the source root), or create a table "
            "(`gossipkv table create`)."
        )
        reasons.append(Reason(WELL, "no databases: nothing is built, and the source has none", None, empty))
    reasons.sort(key=lambda reason: -LEVELS.index(reason.level))  # The sort is stable: an isolated node comes first.
    databases = "1 database" if stated.databases == 1 else f"{stated.databases:,} databases"
    counted = f"{databases}, {counted_members(states.values())}"
    return ClusterVerdict(
        node=stated.node,
        level=worst(reason.level for reason in reasons),
        text=headline(reasons, coming, counted, is_sure=not stated.silent),
        reasons=tuple(reasons),
        reasons_not_told=0,
        coming=coming,
        databases=stated.databases,
        silent={**stated.silent},
        acceptors=answering,
        certificates={
            node: expires_s for node, report in stated.reports.items() if (expires_s := report.certificate_expires_s)
        },
    )


def _of_databases(
    stated: Statements, states: dict[str, str], here: Collection[str]
) -> tuple[list[Reason], dict[str, Coming]]:
    """Return the reasons about all databases in order, and the versions that should serve and do not yet."""
    groups = member_groups(stated.reports, states)
    reasons: list[Reason] = []
    coming: dict[str, Coming] = {}
    for name in sorted({*stated.datasets, *stated.tables}):
        if tables := stated.tables.get(name):
            reasons += of_table(name, tables, here)
        if datasets := stated.datasets.get(name):
            dataset = DatasetJudge(name, datasets, groups)
            if (version := dataset.coming()) is not None:
                coming[name] = version
            reasons += dataset.reasons(version)
    return reasons, coming


def counted_members(states: Iterable[str]) -> str:
    """Return the number of members by state, as in `4 members, 1 dead`."""
    found = list(states)
    members = "1 member" if len(found) == 1 else f"{len(found):,} members"
    unwell = [f"{found.count(state):,} {state}" for state in STATES if state != "alive" and state in found]
    return f"{members}, {', '.join(unwell) or ('alive' if len(found) == 1 else 'all alive')}"
