"""An acceptor that sends wrong data, and a client that poses as a proposer: nodes refuse it, and show right maps."""

from __future__ import annotations

import contextlib
import signal

import pytest

from gossipkv.errors import BadRequest, NotReady
from gossipkv.register.configuration import AcceptorId
from gossipkv.register.edits import MapValue, Transaction, decode_value
from gossipkv.register.messages import (
    AcceptorVerdict,
    RegisterRequest,
    RequestKind,
    decode_reply,
    encode_request,
)
from tests.ci.cluster.node_process import connect
from tests.ci.cluster.table_nodes import until
from tests.ci.cluster.test_acceptors import DONE, RANGES, SHOWN_S, begun, transact, unassign
from tests.ci.cluster.test_older_copy import tables

pytestmark = pytest.mark.timeout(600)

# Python for a node that lies to those who follow its maps.
LIAR = """
from gossipkv.register.maps import Maps

changes, page = Maps.changes, Maps.page

async def lie(self, positions, wait_s):
    return [[*row[:-1], told(row[-1])] for row in await changes(self, positions, wait_s)]

Maps.changes = lie
"""
# A transaction is missing between two others.
HOLE = f"""{LIAR}
def told(steps):
    return steps and [*steps, [steps[-1][0] + 2, [], steps[-1][2]]]
"""
# Edits and entries have other records than their digest says.
DIGEST = f"""{LIAR}
def told(steps):
    return steps and [[at, [[key, b"lie"] for key, _ in edits], digest] for at, edits, digest in steps]

def lying_page(self, register, start):
    generation, sequence, entries, following = page(self, register, start)
    return [generation, sequence, [[key, b"lie"] for key, _ in entries], following]

Maps.page = lying_page
"""
# A snapshot never ends: each page has one more small entry.
ENDLESS = f"""{LIAR}
def told(steps):
    return None

def lying_page(self, register, start):
    generation, sequence, _, _ = page(self, register, b"")
    first, following = (int.from_bytes(start, "big") + more for more in (0, 1))
    return [generation, sequence, [[first.to_bytes(8, "big"), b""]], following.to_bytes(8, "big")]

Maps.page = lying_page
"""


def shown(client):
    """Return the map of `t`, as a node shows it."""
    told = client.call("partition_map", "t")
    return told["config"], told["partitions"]


@pytest.mark.parametrize("lie", [HOLE, DIGEST, ENDLESS], ids=["hole", "digest", "endless"])
def test_an_acceptor_that_sends_wrong_maps(tmp_path, lie):
    """A new node, which at first can ask no other one, refuses its maps and says so, and shows those of others."""
    with contextlib.ExitStack() as stack:
        first = begun(stack, tmp_path, "n1")
        liar = begun(stack, tmp_path, "n2", "--join", first.address, changed=lie)
        other = begun(stack, tmp_path, "n3", "--join", first.address)
        at_first = stack.enter_context(connect(first.address))
        until(lambda: [one["state"] for one in at_first.members()], lambda states: states == ["alive"] * 3)
        at_first.call("create_table", "t", RANGES)
        until(lambda: [len(row["new"]) for row in at_first.call("metadata_status", None)], lambda all_: all_ == [3, 3])
        for node in (first, other):
            node.process.send_signal(signal.SIGSTOP)
        newcomer = begun(stack, tmp_path, "n4", "--join", liar.address)
        at_new = stack.enter_context(connect(newcomer.address))
        if lie is HOLE:  # Its pages are right.
            until(lambda: at_new.call("partition_map", "t"), bool)
        else:
            until(newcomer.said, lambda said: "map_refused" in said)
        for node in (first, other):
            node.process.send_signal(signal.SIGCONT)
        until(lambda: tables(at_new), lambda found: found == tables(at_first), within_s=SHOWN_S)
        for _ in range(20):
            assert transact(at_first.call, *unassign(at_first.call)) == (DONE, "")
        until(lambda: shown(at_new), lambda found: found == shown(at_first), within_s=SHOWN_S)
        until(newcomer.said, lambda said: "map_refused" in said)
        assert "Traceback" not in newcomer.said()


def wrong_values(value, found):
    """Yield values that continue the found one wrongly: with another digest, with a hole, and without a form."""
    last = found.sequence + 1
    edits = ((b"\xff", b"lie"),)
    yield MapValue(last, bytes(32), found.sequence, (Transaction(last, edits, bytes(32)),))
    yield MapValue(last + 1, found.digest, last, (Transaction(last + 1, (), found.digest),))
    yield found._replace(decided=found.sequence - 1, tail=())
    yield found._replace(digest=bytes(32), tail=(), decided=found.sequence)


def test_a_client_that_poses_as_a_proposer(tmp_path):
    """The acceptor accepts no value that its map does not lead to; malformed questions get errors with a reason."""
    with contextlib.ExitStack() as stack:
        node = begun(stack, tmp_path, "n1")
        call = stack.enter_context(connect(node.address)).call
        call("create_table", "t", {**RANGES, "replication": 1})
        register = bytes.fromhex(call("partition_map", "t")["table"])
        ((_, _, _, _, _, ((me, *_), _, _), _, _),) = call("map_changes", [[register, 0, -1, None]], 0)
        me = AcceptorId(*me)

        def ask(kind, ballot=None, value=None):
            request = RegisterRequest(kind, register, me, 1, ballot, value)
            return decode_reply(call("register", encode_request(request)))

        record = ask(RequestKind.READ).record
        for wrong in wrong_values(record.value, decode_value(record.value.payload)):
            value = record.value._replace(payload=wrong.encode())
            assert ask(RequestKind.ACCEPT, record.promise.next(), value).verdict is AcceptorVerdict.MISSING, wrong
        for payload in (b"", b"\xc1", record.value.payload + b"\0"):
            value = record.value._replace(payload=payload)
            assert ask(RequestKind.ACCEPT, record.promise.next(), value).verdict is AcceptorVerdict.MISSING, payload
        assert ask(RequestKind.READ).record == record
        for error, method, *params in (
            (BadRequest, "register", b"\xc1"), (BadRequest, "register", b""),
            (BadRequest, "map_changes", [[register, 0, 0, [1]]], 0),
            (BadRequest, "map_changes", [[register[1:], 0, 0, None]], 0),
            (BadRequest, "map_page", register[1:], b""), (NotReady, "map_page", bytes(16), b""),
        ):  # fmt: skip
            with pytest.raises(error):
                call(method, *params)
        assert call("map_changes", [[bytes(16), 0, -1, None]], 0) == []
        assert call("map_page", register, b"\xff" * 300)[2:] == [[], None]
        assert transact(call, *unassign(call)) == (DONE, "")
        assert "Traceback" not in node.said()
