"""A real acceptor that sends wrong data, and clients that pose as one: nodes refuse the data, and show right maps."""

from __future__ import annotations

import contextlib

import pytest

from tests.ci.cluster.node_process import connect
from tests.ci.cluster.table_nodes import until
from tests.ci.cluster.test_acceptors import DONE, RANGES, SHOWN_S, begun, transact, unassign
from tests.ci.cluster.test_older_copy import tables

pytestmark = pytest.mark.timeout(600)

TRANSACTIONS = 60

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
    return steps[:1] + steps[2:] if steps and len(steps) > 2 else steps
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
# A snapshot goes on for ever, by small steps.
ENDLESS = f"""{LIAR}
def told(steps):
    return None

def lying_page(self, register, start):
    generation, sequence, _, _ = page(self, register, b"")
    first, following = (int.from_bytes(start, "big") + more for more in (0, 1))
    return [generation, sequence, [[first.to_bytes(8, "big"), b""]], following.to_bytes(8, "big")]

Maps.page = lying_page
"""


@pytest.mark.parametrize("lie", [HOLE, DIGEST, ENDLESS], ids=["hole", "digest", "endless"])
def test_an_acceptor_that_sends_wrong_maps(tmp_path, lie):
    """A new node refuses them, shows the right maps of another acceptor, and goes on with them."""
    with contextlib.ExitStack() as stack:
        honest = begun(stack, tmp_path, "n1")
        at_honest = stack.enter_context(connect(honest.address))
        at_honest.call("create_table", "t", {**RANGES, "replication": 1})
        begun(stack, tmp_path, "n2", "--join", honest.address, changed=lie)
        until(lambda: [one["state"] for one in at_honest.members()], lambda states: states == ["alive"] * 2)
        at_honest.call("create_table", "u", {**RANGES, "replication": 2})
        newcomer = begun(stack, tmp_path, "n3", "--join", honest.address)
        at_new = stack.enter_context(connect(newcomer.address))
        until(lambda: tables(at_new), lambda found: found == tables(at_honest) and len(found) == 2)
        for _ in range(TRANSACTIONS):
            assert transact(at_honest.call, *unassign(at_honest.call)) == (DONE, "")
        wanted = at_honest.call("partition_map", "t")
        until(lambda: at_new.call("partition_map", "t"), lambda found: found["config"] >= wanted["config"],
              within_s=SHOWN_S)
        print(newcomer.said()[-3000:])
