"""Made-up reports of three nodes that serve `geo` 1 well, with deviations of one or all nodes."""

from __future__ import annotations

from gossipkv.status.verdict import MemberReports

NODES = ("n1", "n2", "n3")
PLAIN = {"kind": "dataset", "active": "1"}
TABLE = {"kind": "hash"}
AWAY = {**TABLE, "partition_count": 8, "away": {"n3": {"state": "gone", "partitions": 8}}}
LEFT = {**AWAY, "away": {"n3": {"state": "left", "partitions": 1}}}
UNDECIDED = {**TABLE, "acceptors": ["n1", "n2", "n3"]}


def entry(active="1", awaits=None, version=None, **more):
    """Return a dataset's entry; `version` is the awaited version, otherwise the active one."""
    told = {"kind": "dataset", "active": active, **more}
    if awaits is not None:
        told["awaits"] = awaits
    if version is not None:
        told["versions"] = {awaits or active: version}
    return told


def some(*partitions):
    """Return a reported set of partitions, in runs."""
    return {"count": len(partitions), "runs": ",".join(map(str, partitions))}


def said(asked="n1", *, silent=None, members=None, all_say=None, databases=None, **by_node):
    """Return the reports of three nodes, without silent and dead ones.

    `databases`: entries of all nodes; `all_say`: other facts of all; `n2=…`: facts of one node, with `geo` and `carts`.
    """
    away = {name: state for name, state in (members or {}).items() if state in {"dead", "suspect"}}
    quiet = {*(silent or {}), *(name for name, state in away.items() if state == "dead")}
    reports = {}
    for node in NODES:
        if node in quiet:
            continue
        told = {"databases": {"geo": PLAIN, **(databases or {})}, **({"away": away} if away else {}), **(all_say or {})}
        own = dict(by_node.get(node, {}))
        told["databases"] |= {name: own.pop(name) for name in ("geo", "carts") if name in own}
        reports[node] = told | own
    return MemberReports(asked, {**dict.fromkeys(NODES, "alive"), **(members or {})}, reports, silent or {})


def of_two(**by_node):
    """Return the report of the surviving one of two nodes."""
    told = said(members={"n2": "dead"}, **by_node)
    members = {name: state for name, state in told.members.items() if name != "n3"}
    return told._replace(members=members, reports={"n1": told.reports["n1"]})


def without_n3(**by_node):
    """Return the reports of two nodes that have never heard of the third."""
    told = said(**by_node)
    reports = {name: report for name, report in told.reports.items() if name != "n3"}
    return told._replace(members={"n1": "alive", "n2": "alive"}, reports=reports)
