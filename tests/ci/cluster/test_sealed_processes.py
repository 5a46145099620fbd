"""Real nodes with key rings: a wrong key keeps a node out; keys change and sealing is turned on at run time."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from gossipkv.errors import GossipKVError
from gossipkv.launcher import Cluster
from tests.ci.cluster.views import LOGGED, PATIENCE_S, Views, alive, names

if TYPE_CHECKING:
    from pathlib import Path


ALL = range(1, 4)
TWO = range(1, 3)


def keys(*arguments: str | Path) -> str:
    command = [sys.executable, "-m", "gossipkv", "keys", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    return done.stdout.strip()


def dropped(cluster: Cluster, index: int) -> dict[str, int]:
    """Return a node's counts of dropped gossip, by reason."""
    with cluster.connect(index, timeout_ms=60_000) as client:
        counters = client.info()["counters"]
    return {name: count for name, count in counters.items() if name.startswith("gossip_dropped") and count}


def rings(cluster: Cluster, index: int) -> list[str]:
    """Return the key rings that a node has logged as in use, by the ids of their keys."""
    whole, _, _ = cluster.log(index).rpartition("\n")
    lines = map(json.loads, whole.splitlines())
    return [line["ids"] for line in lines if line["event"] == "keys"]


def test_a_wrong_key(tmp_path):
    """A node with another key ring neither hears nor is heard, and each node counts why."""
    ring, other = tmp_path / "keys", tmp_path / "others"
    keys("new", ring)
    keys("new", other)
    with Cluster(tmp_path / "cluster", nodes=3, settings={**LOGGED, "key_ring": str(ring)}) as cluster:
        views = Views(cluster)
        views.until(alive(names(ALL)), ALL)
        assert dropped(cluster, 1) == {}
        stranger = cluster.add(settings={"key_ring": str(other)})
        give_up_s = time.monotonic() + PATIENCE_S
        while not dropped(cluster, 1):
            assert time.monotonic() < give_up_s
            time.sleep(0.2)
        assert views.states(stranger.index) == {stranger.name: "alive"}
        assert all(stranger.name not in views.of(index) for index in ALL)
        views.close()


def test_keys_change_while_nodes_run(tmp_path):
    """No node is declared dead while keys are installed, used and removed with SIGHUP; the old key becomes useless."""
    ring, old = tmp_path / "keys", tmp_path / "old"
    first = keys("new", ring)
    shutil.copy(ring, old)
    with Cluster(tmp_path / "cluster", nodes=3, settings={**LOGGED, "key_ring": str(ring)}) as cluster:
        views = Views(cluster)
        views.until(alive(names(ALL)), ALL)
        mark = views.mark()
        second = keys("install", ring)
        for step in ((), ("use", ring, second), ("remove", ring, first)):
            if step:
                keys(*step)
            in_use = " ".join(line.split()[0] for line in keys("list", ring).splitlines())
            for index in ALL:
                cluster.send(index, signal.SIGHUP)
            for index in ALL:
                retry(lambda index=index, ids=in_use: ids in rings(cluster, index)[-1:])
            time.sleep(2)  # This is enough time to notice a lack of understanding.
        views.until(alive(names(ALL)), ALL)
        stranger = cluster.add(settings={"key_ring": str(old)})
        time.sleep(2)
        assert all(stranger.name not in views.of(index) for index in ALL)
        assert views.declared_dead(mark) == set()
        views.close()


def test_sealing_is_turned_on_in_a_live_cluster(tmp_path):
    """Nodes restarted in turn with `accept`, `send` and `require` know each other at every step."""
    ring = tmp_path / "keys"
    keys("new", ring)
    with Cluster(tmp_path / "cluster", nodes=2, settings=LOGGED) as cluster:
        views = Views(cluster)
        views.until(alive(names(TWO)), TWO)
        for seal in ("accept", "send", "require"):
            for index in TWO:
                cluster.stop(index)
                cluster.start(index, settings={"key_ring": str(ring), "seal": seal})
                views.until(alive(names(TWO)), TWO)
        plain = cluster.add()
        time.sleep(2)
        assert all(plain.name not in views.of(index) for index in TWO)
        views.close()


def test_tokens_are_sealed_by_the_key_ring(tmp_path):
    """Any key of the ring opens a token; a node that lacks its key says so; after its removal a feed begins again."""
    ring, others = tmp_path / "keys", tmp_path / "others"
    first = keys("new", ring)
    shutil.copy(ring, others)
    with Cluster(tmp_path / "cluster", nodes=1, settings={**LOGGED, "key_ring": str(ring)}) as cluster:
        cluster.add(settings={"key_ring": str(others)})
        with cluster.connect(1, timeout_ms=60_000) as one, cluster.connect(2, timeout_ms=60_000) as two:
            retry(lambda: one.call("create_table", "t", {"kind": "hash", "partitions": 4, "replication": 2}))
            session = retry(lambda: one.call("put", "t", b"k", b"v", {"level": "all"}))
            _, feed = retry(lambda: one.call("changes", "t", {"start": "snapshot"}))

            def outcome(node, token):
                call = ("changes", "t") if token == feed else ("get", "t", b"k")
                try:
                    return node.call(*call, {"token": token})[-1]
                except GossipKVError as error:
                    return error.code

            second = keys("install", ring)
            keys("use", ring, second)
            cluster.send(1, signal.SIGHUP)
            retry(lambda: bytes.fromhex(second) in outcome(one, session))
            newer = outcome(one, session)
            assert outcome(two, newer) == "NOT_READY"
            assert outcome(two, session) != "NOT_READY"
            shutil.copy(ring, others)
            cluster.send(2, signal.SIGHUP)
            retry(lambda: outcome(two, newer) != "NOT_READY")
            assert isinstance(outcome(one, feed), bytes)
            keys("remove", ring, first)
            cluster.send(1, signal.SIGHUP)
            retry(lambda: outcome(one, session) == "NOT_READY")
            assert outcome(one, feed) == "TOO_OLD"
            assert isinstance(outcome(one, newer), bytes)


def retry(call):
    """Call again until there is neither an error nor False."""
    give_up_s = time.monotonic() + PATIENCE_S
    while True:
        with suppress(GossipKVError):
            if (found := call()) is not False:
                return found
        assert time.monotonic() < give_up_s
        time.sleep(0.2)
