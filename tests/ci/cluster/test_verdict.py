"""The verdict is equal at all real nodes while a version fails, an owner dies or a table loses its majority.

A node that is cut off says so first, on its page and in `status`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from typing import TYPE_CHECKING

from gossipkv.launcher import Cluster
from tests.ci.cluster.table_nodes import until
from tests.ci.cluster.test_datasets import PATIENCE_S, SETTINGS, connect, publish, running, wait_for, wait_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gossipkv.wire.rpc import Value

    Told = dict[str, Value]


def command(address: str, *options: str) -> tuple[int, str, str]:
    """Return the exit status of `gossipkv status`, and its output."""
    line = [sys.executable, "-m", "gossipkv", "status", *options, "--node", address]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GOSSIPKV_")}
    done = subprocess.run(line, capture_output=True, env=clean, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def texts(verdict: Told) -> list[str]:
    return [reason["text"] for reason in verdict["reasons"]]


def agreed(addresses: Sequence[str], holds: Callable[[Told], bool]) -> Told:
    """Return the verdict, once all nodes agree and `holds` is true of it."""
    give_up_s = time.monotonic() + PATIENCE_S
    while True:
        told = []
        for address in addresses:
            with connect(address) as client:
                told.append(client.verdict() | {"node": None})
        if holds(told[0]) and all(each == told[0] for each in told):
            return told[0]
        assert time.monotonic() < give_up_s, told
        time.sleep(0.1)


def addresses_of(cluster: Cluster) -> list[str]:
    return [node.address for node in cluster.status() if node.state == "ready"]


def shows(cluster: Cluster, words: str) -> bool:
    """True if the pages of all running nodes have these words."""
    pages = [
        urllib.request.urlopen(f"http://{node.http}/", timeout=PATIENCE_S).read().decode()
        for node in cluster.status()
        if node.state == "ready"
    ]
    assert pages
    return all(words in page for page in pages)


def test_a_version_that_fails_where_one_is_not_asked(tmp_path):
    """One of three nodes cannot build its share: every node and page says so, and `--wait` ends at once."""
    publish(tmp_path / "source", "v1")
    with Cluster(
        tmp_path / "cluster", nodes=3, source=tmp_path / "source", replication=1, settings=SETTINGS, http=True
    ) as cluster:
        wait_for(cluster, "v1")
        assert agreed(addresses_of(cluster), lambda told: told["level"] == "well")["text"].startswith("All is well.")
        publish(tmp_path / "source", "v2", "words")
        wait_for(cluster, "v2", "words")
        parts = tmp_path / "source" / "geo" / "_v2"
        parts.mkdir()
        (parts / "part-00000.tsv").write_bytes(b"no tabulator\n")
        for number in range(1, 8):
            (parts / f"part-{number:05}.tsv").write_bytes(b"")
        parts.rename(tmp_path / "source" / "geo" / "v2")
        told = agreed(addresses_of(cluster), lambda told: told["level"] == "trouble")
        assert told["coming"]["geo"]["state"] == "stuck"
        (text,) = texts(told)
        assert "cannot build it: " in text
        assert "the line 'no tabulator' contains no TAB" in text
        until(lambda: shows(cluster, "1 thing is wrong. 2 databases, 3 members, all alive."), bool)
        for address in addresses_of(cluster):
            status, out, err = command(address, "--wait", "--timeout", "60s")
            assert status == 3
            assert "1 thing is wrong" in out
            assert err.startswith("gossipkv: geo: version v2 does not come: ")
        status, out, err = command(address, "words", "--wait", "--timeout", "60s")
        assert (status, err) == (0, "")
        words = "words", "--verdict", "--json"
        until(lambda: json.loads(command(address, *words)[1])["level"], lambda level: level == "well")


def test_an_owner_that_dies(tmp_path):
    """All remaining nodes agree: first on the death, then on the partitions with too few owners."""
    publish(tmp_path / "source", "v1")
    with running(tmp_path, 4, 2, {"reassign_after": "1h"}) as cluster:
        wait_for(cluster, "v1")
        wait_whole(cluster, "v1")
        cluster.kill(4)
        told = agreed(addresses_of(cluster), lambda told: "n4 is dead" in texts(told))
        assert told["level"] == "attention"
        assert told["text"] == "Everything can be read; something deserves attention. 1 database, 4 members, 1 dead."
        assert any("partitions on fewer than 2 live nodes" in text for text in texts(told))
        cluster.start(4)
        agreed(addresses_of(cluster), lambda told: told["level"] == "well")


def test_a_table_that_loses_its_majority(tmp_path):
    """Two of five nodes are killed: the others agree on the partitions that take no writes, and on the acceptors."""
    with running(tmp_path, 5, 2) as cluster:
        agreed(addresses_of(cluster), lambda told: told["text"].endswith(" 5 members, all alive."))
        with connect(addresses_of(cluster)[0]) as client:
            client.call(
                "create_table", "carts", {"kind": "hash", "partitions": 16, "replication": 3}, timeout_ms=60_000
            )
            client.table("carts").put(b"k", b"v", timeout_ms=60_000)
        agreed(addresses_of(cluster), lambda told: told["level"] == "well" and len(told["acceptors"]) == 5)
        for index in (4, 5):
            cluster.kill(index)
        majority = "1 of 3 replicas can confirm a write, but a majority is 2"
        told = agreed(addresses_of(cluster), lambda told: any(majority in text for text in texts(told)))
        assert told["level"] == "trouble"
        assert list(told["acceptors"].values()) == [True, True, True, False, False]
        assert command(addresses_of(cluster)[0])[0] == 3


def test_who_is_cut_off_says_that_first(tmp_path):
    """A node whose peers are frozen reports first that it is cut off, since its view of them is stale."""
    publish(tmp_path / "source", "v1")
    with running(tmp_path, 3, 2) as cluster:
        wait_for(cluster, "v1")
        one, *others = cluster.status()
        for node in others:
            cluster.send(node.index, signal.SIGSTOP)
        try:
            told = agreed([one.address], lambda told: told["level"] == "trouble")
            assert texts(told)[0].startswith((f"{one.name} is cut off: ", f"{one.name} hears 1 of 3 members"))
            told = agreed([one.address], lambda told: texts(told)[0].startswith(f"{one.name} is cut off: "))
            assert command(one.address, "--verdict")[1].splitlines()[1].startswith(f"{one.name} is cut off: ")
        finally:
            for node in others:
                cluster.send(node.index, signal.SIGCONT)
        agreed(addresses_of(cluster), lambda told: told["level"] == "well")


def test_a_cluster_without_databases_waits_for_nothing(tmp_path):
    """The cluster is well, and `status` advises the first step."""
    with running(tmp_path, 1, 1) as cluster:
        status, out, err = command(addresses_of(cluster)[0], "--wait")
    assert (status, err) == (0, "")
    assert "All is well. 0 databases, 1 member, alive." in out
    assert "→ Publish a first version" in out


def test_who_does_what_the_advice_says_is_told_that_it_helps(tmp_path):
    """A repaired file is built and waited for; a removed directory is gone from every node's verdict."""
    parts = tmp_path / "source" / "geo" / "v1"
    parts.mkdir(parents=True)
    (parts / "part-0.tsv").write_bytes(b"no tabulator\n")
    (tmp_path / "source" / "empty").mkdir()
    with running(tmp_path, 3, 2) as cluster:
        addresses = addresses_of(cluster)
        told = agreed(addresses, lambda told: told["coming"].get("geo", {}).get("state") == "stuck")
        assert any(text.startswith("empty: nothing can be read") for text in texts(told))
        (parts / "part-0.tsv").write_bytes(b"".join(b"key%d\tvalue\n" % number for number in range(200_000)))
        (tmp_path / "source" / "empty").rmdir()
        agreed(addresses, lambda told: told["coming"].get("geo", {}).get("state") != "stuck")
        for address in addresses:
            assert (done := command(address, "geo", "--wait", "--timeout", "60s"))[::2] == (0, ""), done
        agreed(addresses, lambda told: (told["level"], told["databases"]) == ("well", 1))
        with connect(addresses[0]) as client:
            client.call("create_table", "empty", {"kind": "hash", "partitions": 4, "replication": 1}, timeout_ms=60_000)
