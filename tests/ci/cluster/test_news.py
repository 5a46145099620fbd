"""Real nodes that have stopped gossiping their publications: a switch is still learned over their connections."""

from __future__ import annotations

from contextlib import ExitStack

from gossipkv.keyspace.partitioner import partition
from tests.ci.cluster.node_process import UNHURRIED, NodeProcess, connect, wait_for

PARTITIONS = 4
KEYS = [b"key%d" % number for number in range(40)]
SETTINGS = [
    "--replication", "1", "--time-to-converge", "1s", "--refresh-period", "200ms", "--reassign-after", "2s",
    "--profile", "wan",  # Delays of a busy machine are within its patience: a silenced node cannot refute a suspicion.
]  # fmt: skip
# Once the file exists, no rumour or exchange leaves a node; pings do, so all stay alive to each other.
DUMB = """
import os
from gossipkv.gossip.anti_entropy.exchange import SyncExchange
from gossipkv.gossip.membership.rumours import Spreading
def unless_dumb(owner, name, instead):
    usual = getattr(owner, name)
    setattr(owner, name, lambda *given: instead(*given) if os.path.exists({path!r}) else usual(*given))
unless_dumb(Spreading, "laden", lambda spreading, message: message)
unless_dumb(Spreading, "tell", lambda spreading, members: None)
unless_dumb(SyncExchange, "_sync", lambda *_: None)
unless_dumb(SyncExchange, "_request", lambda *_: None)
"""


def test_a_switch_is_known_without_gossip(tmp_path):
    """Each of two nodes has half of a version: both switch, and accept clients that saw the switch at the other."""
    source, dumb = tmp_path / "source", tmp_path / "dumb"
    changed = UNHURRIED + DUMB.format(path=str(dumb))
    with ExitStack() as stack:
        running = []
        for number in "12":
            place = tmp_path / number
            place.mkdir()
            more = ["--shard-id", number, *(word for node in running for word in ("--join", node.address))]
            node = stack.enter_context(NodeProcess(place, *SETTINGS, *more, source=source, changed=changed))
            node.ready()
            running.append(node)
        shared = False
        for number in range(100, 200):
            version = f"v{number}"
            publish(source, version)
            for node in running:
                wait_for(node.address, "db", version)
            if shared:
                break
            shared = forwarded(running[0]) > 0  # At first a node does not count on the other, and builds all.
        assert shared
        dumb.touch()
        for version in ("v2", "v3"):
            publish(source, version)
            for node in running:
                wait_for(node.address, "db", version)
                with connect(node.address) as client:
                    values, told = client.dataset("db").get_many_with_version(KEYS, min_version=version)
                    assert (values, told) == ([version.encode()] * len(KEYS), version)
        with connect(running[0].address) as client:
            assert {member["state"] for member in client.members()} == {"alive"}


def forwarded(node):
    """Read all keys from a node and return its count of forwarded reads."""
    with connect(node.address) as client:
        client.dataset("db").get_many(KEYS)
        return client.info()["counters"]["forwarded"]


def publish(source, version):
    making = source / f"db/_{version}"
    making.mkdir(parents=True)
    for number in range(PARTITIONS):
        lines = [
            b"%b\t%b\n" % (key, version.encode()) for key in KEYS if partition("sequins", key, PARTITIONS) == number
        ]
        (making / f"part-{number:05}").write_bytes(b"".join(lines))
    making.rename(source / "db" / version)
