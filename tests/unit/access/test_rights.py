"""Rights have one syntax and cover database names, and every request needs one."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random
from unittest.mock import MagicMock

import pytest

from gossipkv.access.rights import COMMANDS, METHODS, Grant, Right, of_method, of_path, parse_grant
from gossipkv.backup.methods import BackupMethods
from gossipkv.http.site import site_of
from gossipkv.node.cluster_methods import ClusterMethods
from gossipkv.node.data_methods import DataMethods
from gossipkv.node.report_methods import ReportMethods
from gossipkv.serving import resp
from gossipkv.settings.config import Config
from gossipkv.table.records.endpoints import RecordMethods
from gossipkv.table.rpc.admin import AdminMethods
from gossipkv.table.rpc.dispatch import TableMethods
from gossipkv.table.rpc.node_admin import NodeAdminMethods
from gossipkv.table.rpc.peer_rpc import PeerMethods
from gossipkv.table.rpc.quarantine import QuarantineMethods
from gossipkv.table.rpc.range_admin import RangeAdminMethods

ROOT = Path(__file__).parents[3]
PART = MagicMock()
FOR_OPERATORS = {
    *AdminMethods(PART, Random(1)).methods, *NodeAdminMethods(PART, Random(1)).methods,
    *RangeAdminMethods(PART, Random(1)).methods, *QuarantineMethods(PART).methods,
}  # fmt: skip
WRITES = {b"put", b"delete", b"put_many", b"delete_many", b"delete_range"}
OF_RECORDS = {*RecordMethods(PART, Random(1), Config()).methods}


@pytest.mark.parametrize("text", ["read:geo*", "write:carts", "read:*", "write:*-eu_1*", "operate", "see"])
def test_a_right_is_written_as_it_was_read(text):
    """A right about databases has a pattern."""
    grant = parse_grant(text)
    assert str(grant) == text
    assert bool(grant.pattern) == (":" in text)


REFUSED = [
    ("peer", "unknown right"), ("none", "unknown right"), ("READ:geo", "unknown right"), ("", "unknown right"),
    ("read", "needs a pattern"), ("read:", "needs a pattern"), ("write", "needs a pattern"),
    ("operate:geo", "write only operate"), ("see:", "write only see"),
    ("read:geo,carts", "a pattern must be"), ("read:geo?", "a pattern must be"), ("read: geo", "a pattern must be"),
    ("read:geo\n", "a pattern must be"), ("read:" + "a" * 201, "a pattern must be"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "told"), REFUSED)
def test_what_is_no_right(text, told):
    """The error is one sentence with the text."""
    with pytest.raises(ValueError, match=re.escape(repr(text)) + f".*{told}"):
        parse_grant(text)


def test_a_pattern_of_many_asterisks_takes_one_pass():
    """A search through all divisions of the name would take years."""
    assert not Grant(Right.READ, "a*" * 90 + "b").holds("a" * 200)


def test_a_right_holds_for_the_databases_of_its_pattern():
    """The whole name counts; without a database only rights without a pattern hold."""
    for pattern, name in [("geo*", "geo-eu"), ("geo*", "geo"), ("*-eu", "geo-eu"), ("g*-*u", "geo-eu"), ("*", "geo")]:
        assert Grant(Right.READ, pattern).holds(name)
    for pattern, name in [("geo", "geo-eu"), ("geo*", "ge"), ("eu", "geo-eu"), ("g*o*o", "geo"), ("geo", "Geo")]:
        assert not Grant(Right.READ, pattern).holds(name)
    assert not Grant(Right.READ, "*").holds(None)
    assert Grant(Right.SEE).holds(None)
    assert Grant(Right.SEE).holds("geo")


# Every request needs a right.


def test_every_method_has_a_right():
    """The methods are those of a node and of its tables, and no others."""
    tables, part = TableMethods(MagicMock(), Random(1), Config()), MagicMock()
    parts = (
        ReportMethods(part, tables, part, part, part, info=part, report=part, verdicts=part),
        DataMethods(part, part, tables, part, cluster=part, verdicts=part),
        ClusterMethods(part, part, part, serves=part),
        BackupMethods(part, places=part, abandon_s=0, cluster=part, on_backup=part),
    )
    methods = {method for part in parts for method in part.methods}
    assert METHODS.keys() == methods | {b"auth", b"cancel", b"hello", b"status", b"resp", b"changes"}


def test_every_command_of_resp_has_a_right():
    """The commands are those of Python and of the serving loop."""
    source = (ROOT / "src_ext/gossipkv/serving/resp/commands.pyx").read_text(encoding="utf-8")
    in_c = set(re.findall(r'CommandRule\(b"(\w+)"', source))
    assert len(in_c) > 20
    assert COMMANDS.keys() == {name.encode() for name in {*in_c, *resp.COMMANDS}}


def test_methods_between_nodes_are_for_nodes():
    """No method for people is open to nodes only."""
    people = FOR_OPERATORS | WRITES | {b"verify_table"}
    nodes = {*PeerMethods(PART).methods, b"report", b"serves"} | OF_RECORDS - people
    assert {method for method in nodes if of_method(method) != Right.PEER} == set()
    assert {method for method in people if Right.PEER in of_method(method)} == set()


def test_what_writes_needs_to_write():
    """No right to look suffices to change records or decisions."""
    looks = {name for name, right in METHODS.items() if right & (Right.READ | Right.SEE)}
    assert looks.isdisjoint({*WRITES, b"refresh", b"backup", b"restore", b"backup_list", b"quarantine_drop"})
    assert looks & FOR_OPERATORS == {
        *(b"metadata_status", b"plan", b"placement_nodes", b"partitions", b"quarantine_list"),
    }
    assert {name for name, right in COMMANDS.items() if right == Right.WRITE} == {
        name.encode() for name, known in resp.COMMANDS.items() if known.flags == ("write",)
    }


def test_resp_is_judged_by_the_command_in_it():
    """Letter case does not matter; unknown and missing commands are refused."""
    assert of_method(b"resp", b"ScAn") == Right.READ
    assert of_method(b"resp", b"set") == Right.WRITE
    assert of_method(b"resp", b"ping") == Right.NONE
    assert of_method(b"resp", b"flushall") == of_method(b"resp") == Right.PEER
    assert of_method(b"get", b"ping") == Right.READ


@pytest.mark.parametrize("method", [b"", b"gett", b"GET", b"get ", b"resp\0", b"\xff"])
def test_what_has_no_line_is_for_nobody(method):
    """A method is looked up by its whole name."""
    assert of_method(method) == Right.PEER


def test_every_path_of_http():
    """Health needs no right, the gateway's other paths and the page need `see`, a key needs `read`."""
    own = site_of(MagicMock(), MagicMock())[0]._paths
    needs = {path: of_path(path, b"vars" if path == b"/debug/vars" else None) for path in own}
    assert needs == {
        b"/healthz": Right.NONE, b"/livez": Right.NONE, b"/readyz": Right.NONE,
        b"/metrics": Right.SEE, b"/debug/vars": Right.SEE,
    }  # fmt: skip
    assert {of_path(path, key) for path, key in [(b"/", None), (b"/geo/", b""), (b"/geo", None), (b"*", None)]} == {
        Right.SEE
    }
    assert of_path(b"/static/page.css", b"page.css", is_asset=True) == Right.SEE
    reads = [b"geo/lima", b"geo/_mget", b"healthz/x", b"metrics/", b"debug/vars/x", b"debug/Vars", b"static/lima"]
    assert {of_path(b"/" + path, path.partition(b"/")[2] or b"x") for path in reads} == {Right.READ}
