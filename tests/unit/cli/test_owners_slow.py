"""`status` of databases on several nodes: its tables and its exit status."""

from __future__ import annotations

from functools import partial

import pytest
from rich.console import Console

from gossipkv.cli.status import members_table, owners_table
from gossipkv.status.codec import decode_list
from gossipkv.status.reports import MemberReport, status_report
from tests.unit.client.fake_node import FakeNode, answering

WELL = {"node": "n1", "level": "well", "text": "All is well.", "reasons": []}
INFO = {"node": "n1", "cluster": "c", "uptime_s": 65.0, "shard_id": "1"}


def some(*partitions, runs=None):
    """Return a set of partitions as a node reports it."""
    return {"count": len(partitions), "runs": ",".join(map(str, partitions)) if runs is None else runs}


def owner(name, state, ready, building=None):
    return {"node": name, "state": state, "ready": ready, "building": building or some()}


def node(name, active="v1", state="alive"):
    return {"node": name, "state": state, "active": active}


def told(missing=None, under_replicated=None, *, nodes=None, **version):
    """Return the report of a database on three nodes, of which one is dead."""
    return {"geo": {
        "kind": "dataset", "active": "v1", "hold": None, "error": None, "replication": 2, "min_replication": 1,
        "nodes": nodes or [node("n1"), node("n2"), node("n3", state="dead")],
        "nodes_not_named": 0,
        "versions": {"v1": {
            "state": "ACTIVE", "format": "tsv", "function": "sequins", "partitions": [{}] * 5, "records": 3437,
            "size_bytes": 90_624, "partition_count": 8, "missing": missing or some(),
            "under_replicated": under_replicated or some(),
            "owners": [
                owner("n1", "alive", some(0, 1, 2, 5, 6, runs="0-2,5-6")),
                owner("n2", "suspect", some(0, 3, 4, 7, runs="0,3-4,7"), some(1)),
                owner("n3", "dead", some(1, 2, 3, runs="1-3")),
            ],
            "owners_not_named": 0,
        } | version},
    }}  # fmt: skip


def ask(run, said, *options):
    """Return the exit status, the lines and the output of the command."""
    with FakeNode(answering(("status", said), ("info", INFO), ("verdict", WELL))) as fake:
        done = run("status", *options, "--node", fake.address)
    return done.status, [" ".join(line.split()) for line in done.out.splitlines()], done.out


def test_who_has_what_is_a_table(run):
    """Each owner has a line; database and version are named once, with the share that is here."""
    status, lines, _ = ask(run, told())
    assert status == 0
    assert "geo v1 ACTIVE tsv sequins 5 of 8 3,437 88.5 KiB" in lines
    assert "database version node member ready building partitions" in lines
    at = lines.index("geo v1 n1 alive 5 0-2,5-6")
    assert lines[at + 1 :][:2] == ["n2 suspect 4 1 0,3-4,7", "n3 dead 0 1-3"]


def test_a_node_that_knows_no_other_tells_of_no_owners(run):
    """A single node needs no owners table, and its lack of replicas is no fault."""
    status, lines, out = ask(run, told(under_replicated=some(0, 1), nodes=[node("n1")]))
    assert (status, len(lines)) == (0, 5), lines
    assert "fewer" not in out


def test_many_runs_are_cut(run):
    """The table has the first runs and counts the rest."""
    many = some(*range(0, 40, 2))
    _, lines, _ = ask(run, told(owners=[owner("n1", "alive", many)], owners_not_named=1200))
    assert "geo v1 n1 alive 20 0,2,4,6,8,10,12,14,..." in lines
    assert "and 1200 more" in lines


@pytest.mark.parametrize("width", [40, 80])
def test_owners_in_a_narrow_terminal(run, monkeypatch, width):
    """The state of each owner is never folded."""
    for module in "screen", "status":
        monkeypatch.setattr(f"gossipkv.cli.{module}.console", partial(Console, width=width, highlight=False))
    words = ask(run, told())[2].split()
    assert [words.count(state) for state in ("alive", "suspect", "dead")] == [1, 1, 1]


@pytest.mark.parametrize("said", [{}, {"geo": None}, {"geo": {}}, {"geo": {"nodes": 3, "versions": {"v1": 5}}}])
def test_what_another_program_tells_is_no_reason_to_fall(said):
    """A node of another release may report less, or another form."""
    assert owners_table(status_report(said).datasets) is None


def test_tables_have_a_table_of_their_own(run):
    """The table names the nodes of each table and their lag."""
    nodes = [
        {"node": "n1", "state": "alive", "partitions": 16, "lag_records": 0, "lag_s": 0.0},
        {"node": "n2", "state": "dead", "partitions": 16, "lag_records": 1234, "lag_s": 3.0},
    ]
    carts = {"kind": "hash", "replication": 2, "partition_count": 16, "nodes": nodes, "unwell": []}
    status, lines, _ = ask(run, {"carts": carts})
    assert status == 0
    assert "table kind node member partitions lacks" in lines
    assert "carts hash n1 alive 16" in lines
    assert "n2 dead 0 16 replicas are down; 1,234 records, for 3.0 s" in lines


def test_equal_lines_are_one(run):
    """Nodes of a table that differ only in the name share a line, and so do the owners of equal databases."""
    nodes = [{"node": name, "state": "alive", "partitions": 16} for name in ("n1", "n2", "n3")]
    carts = {"kind": "hash", "replication": 2, "partition_count": 16, "nodes": nodes, "unwell": []}
    _, lines, _ = ask(run, {f"geo{number:03}": told()["geo"] for number in range(100)} | {"carts": carts})
    assert "carts hash n1, n2 and n3 alive 16" in lines
    assert len([line for line in lines if "n2 suspect" in line]) == 1
    assert len([line for line in lines if "ACTIVE" in line]) == 100


def test_members_have_their_states_and_addresses():
    """Each member has a row."""
    members = [{"node": "n1", "state": "alive", "address": "a:1"}, {"node": "n2", "state": "dead", "address": "a:2"}]
    made = members_table(decode_list(MemberReport, members))
    assert [[str(cell) for cell in column.cells] for column in made.columns] == [
        ["n1", "n2"], ["alive", "dead"], ["a:1", "a:2"],
    ]  # fmt: skip


def test_what_moves_has_a_column(run):
    """The column is there only while something moves."""
    nodes = [
        {"node": "n1", "state": "alive", "partitions": 16, "coming": 0, "leaving": 2},
        {"node": "n2", "state": "alive", "partitions": 0, "coming": 3, "leaving": 0},
    ]
    carts = {"kind": "hash", "replication": 2, "partition_count": 16, "nodes": nodes, "unwell": []}
    _, lines, _ = ask(run, {"carts": carts})
    assert "table kind node member partitions moves lacks" in lines
    assert "carts hash n1 alive 16 2 leaving" in lines
    assert "n2 alive 0 3 coming" in lines
