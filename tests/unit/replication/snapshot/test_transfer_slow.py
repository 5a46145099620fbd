"""Tests that cost seconds; `test_transfer.py` has the others."""

from __future__ import annotations

from functools import partial

import pytest

from gossipkv.errors import Overloaded
from tests.unit.replication.memory import Cluster


@pytest.fixture(autouse=True)
def _pages_are_small(monkeypatch):
    monkeypatch.setattr("gossipkv.replication.snapshot.transfer.PAGE_BYTES", 1)


def left_behind(cluster, node, **values):
    """Cut off a node while the others write and trim their logs."""
    cluster.cut(node)
    first = next(one for one in cluster.nodes if one is not node)
    first.write(**(values or {f"k{number}": b"new" for number in range(9)}))
    cluster.pass_s(0.5)
    for other in cluster.nodes:
        if other is not node:
            other.trim()


@pytest.mark.parametrize("how", ["crash", "source crash", "trim", "source moves", "no room"])
def test_a_load_that_is_torn_at_any_page(how):
    """A torn load leaves no space behind and starts again, also from other sources."""
    for page in range(12):
        cluster = Cluster()
        one, two, three = cluster.nodes
        three.write(a=b"1")
        cluster.pass_s(0.5)
        left_behind(cluster, three)
        three.write(alone=b"3")
        pages = []

        cluster.before_answer.append(partial(strikes_at, (page, how, pages)))
        cluster.connect(three)
        for number in range(5):
            two.write(**{f"m{number}": b"1"})
            cluster.pass_s(0.1)
        cluster.pass_s(0.5)
        three.refuses = None
        if how in {"crash", "source crash"}:
            cluster.connect()
        cluster.until(lambda cluster=cluster: cluster.is_caught_up)
        cluster.pass_s(1.0)
        for node in cluster.nodes:
            assert node.live == one.live
            assert [*node.spaces] == [node.copy.space]
        assert one.live.items() >= {b"a": b"1", b"alone": b"3", b"m4": b"1"}.items()


def strikes_at(what, asker, asked, method, params):
    page, how, pages = what
    del params
    pages += [asked] if method == "replica_load" else []
    if method != "replica_load" or len(pages) != page + 1:
        return
    cluster = asker.cluster
    if how == "crash":
        cluster.soon(lambda: cluster.crash(asker))
    elif how == "source crash":
        cluster.soon(lambda: cluster.crash(asked))
    elif how == "trim":
        asked.trim()
    elif how == "source moves":
        other = next(node for node in cluster.nodes if node not in {asker, asked})
        asked.replicas.loader.hears(other.uuid, asked.copy, below=True)
        asked.replicas.loader._begin(asked.copy, other.uuid, cluster.now)
    else:
        asker.refuses = Overloaded("no room")
