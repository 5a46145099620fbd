"""Datasets on clusters of real processes: nodes share the partitions, any node answers any key, no read fails."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Self

import pytest

from gossipkv.client import blocking
from gossipkv.errors import GossipKVError, NotReady, TimedOut, UnknownDatabase
from gossipkv.keyspace.partitioner import partition
from gossipkv.launcher import Cluster
from tests.ci.cluster.node_process import PATIENT, PATIENTLY, NodeProcess

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

PATIENCE_S = 120
PARTITIONS = 8
NAME = f"datasets-{os.getpid()}"  # The name keeps out tests that look for another cluster at these ports.
SETTINGS = {
    "time_to_converge": "1s", "refresh_period": "200ms", "build_priority": "normal",
    "log_level": "info",
    **PATIENT,
}  # fmt: skip
TOGETHER = {"time_to_converge": "10s"}  # Late nodes still get a share, and no node waits once all are present.


def records(version: str) -> dict[bytes, bytes]:
    """Return a version's records: keys of its own, and keys that every version has with other values."""
    shared = {b"key%05d" % number: f"{version} {number}".encode() for number in range(5_000)}
    return shared | {f"{version} {number}".encode(): b"own" for number in range(500)}


def publish(source: Path, version: str, database: str = "geo") -> dict[bytes, bytes]:
    """Publish a version at the source atomically; return its records."""
    held = records(version)
    place = source / database / f"_{version}"
    place.mkdir(parents=True)
    lines: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
    for key, value in held.items():
        lines[partition("sequins", key, PARTITIONS)].append(b"%b\t%b\n" % (key, value))
    for number, part in enumerate(lines):
        (place / f"part-{number:05}.tsv").write_bytes(b"".join(part))
    place.rename(source / database / version)
    return held


@contextlib.contextmanager
def running(place: Path, nodes: int, replication: int, settings: Mapping[str, str] | None = None) -> Iterator[Cluster]:
    source = place / "source"
    source.mkdir(exist_ok=True)
    with Cluster(
        place / "cluster",
        nodes=nodes,
        source=source,
        replication=replication,
        settings={**SETTINGS, **(settings or {})},
    ) as cluster:
        yield cluster


def connect(address: str) -> blocking.Client:
    return blocking.Client([address], timeout_ms=PATIENCE_S * 1000, follows=False).dial()


def wait_for(cluster: Cluster, version: str, database: str = "geo") -> None:
    """Return when every running node answers from that version."""
    give_up_s = time.monotonic() + PATIENCE_S
    for node in cluster.status():
        if node.state != "ready":
            continue
        with connect(node.address) as client:
            while True:
                with contextlib.suppress(NotReady, TimedOut, UnknownDatabase):
                    if client.dataset(database).get_with_version(b"", timeout_ms=2000)[1] == version:
                        break
                assert time.monotonic() < give_up_s, (node, client.status())
                time.sleep(0.05)


def wait_whole(cluster: Cluster, version: str) -> None:
    """Return when every node knows the wanted number of live owners of each partition."""
    give_up_s = time.monotonic() + PATIENCE_S
    for node in cluster.status():
        with connect(node.address) as client:
            while (told := client.status("geo")["geo"]["versions"][version])["under_replicated"]["count"]:
                assert time.monotonic() < give_up_s, told
                time.sleep(0.05)


def counters(address: str) -> dict[str, int]:
    with connect(address) as client:
        found = client.info()["counters"]
        assert isinstance(found, dict)
        return {name: count for name, count in found.items() if isinstance(count, int)}


class Load:
    """Clients that read without pause, one for each address, and check every answer.

    With `wander`, each client goes from node to node and sends the version that it has seen with each read.
    """

    def __init__(
        self, addresses: list[str], truth: Mapping[str, Mapping[bytes, bytes]], *, wander: bool = False
    ) -> None:
        self.reads = 0
        self.trouble: list[str] = []
        self.seen: dict[str, list[str]] = {address: [] for address in addresses}  # Versions, in the order of answers.
        self._truth = truth
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._read, args=(at, addresses if wander else [addresses[at]]))
            for at in range(len(addresses))
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def wait(self, reads: int) -> None:
        """Return when so many more reads have been answered."""
        until, seen, give_up_s = self.reads + reads, self.reads, time.monotonic() + PATIENCE_S
        while self.reads < until and not self.trouble:
            if self.reads > seen:
                seen, give_up_s = self.reads, time.monotonic() + PATIENCE_S
            assert time.monotonic() < give_up_s, (self.reads, until)
            time.sleep(0.01)

    def wait_all(self, version: str) -> None:
        """Return when each client was answered from that version, however late a busy machine makes it."""
        give_up_s = time.monotonic() + PATIENCE_S
        while any(seen[-1:] != [version] for seen in self.seen.values()) and not self.trouble:
            assert time.monotonic() < give_up_s, self.seen
            time.sleep(0.01)

    def _read(self, own: int, addresses: list[str]) -> None:
        keys = sorted({key for held in self._truth.values() for key in held})
        at, seen = own, self.seen[[*self.seen][own]]
        with contextlib.ExitStack() as stack:
            nodes = [stack.enter_context(connect(address)).dataset("geo") for address in addresses]
            while not self._stop.is_set():
                at += 977
                key, node = keys[at % len(keys)], at % len(nodes)
                least = seen[-1] if seen and len(nodes) > 1 else None
                try:
                    value, version = nodes[node].get_with_version(key, timeout_ms=PATIENCE_S * 1000, min_version=least)
                except GossipKVError as error:
                    self.trouble.append(f"{addresses[node]}: {error.code} {error}")
                    continue
                self.reads += 1
                if self._truth[version].get(key) != value:
                    self.trouble.append(f"{addresses[node]}: {key!r} is {value!r}, says {version}")
                if not seen or seen[-1] != version:
                    seen.append(version)


def test_who_says_what_it_saw_never_steps_back(tmp_path):
    """Clients that change nodes and send `min_version` see no error and no older answer while versions are switched."""
    truth = {"v1": publish(tmp_path / "source", "v1")}
    truth |= {version: records(version) for version in ("v2", "v3")}
    with running(tmp_path, 3, 2) as cluster:
        wait_for(cluster, "v1")
        with Load([node.address for node in cluster.status()], truth, wander=True) as load:
            load.wait_all("v1")
            for version in ("v2", "v3"):
                load.wait(2_000)
                publish(tmp_path / "source", version)
                wait_for(cluster, version)
                load.wait_all(version)
            load.wait(2_000)
        assert load.trouble == []
        assert all(seen == ["v1", "v2", "v3"] for seen in load.seen.values()), load.seen
        assert load.reads > 6_000


def test_nodes_that_are_restarted_in_turn_fail_no_read_of_others(tmp_path):
    """Each of three nodes, with two replicas, is restarted while a new version comes."""
    truth = {"v1": publish(tmp_path / "source", "v1"), "v2": records("v2")}
    with running(tmp_path, 3, 2) as cluster:
        wait_for(cluster, "v1")
        addresses = [node.address for node in cluster.status()]
        for index in (1, 2, 3):
            with Load([address for at, address in enumerate(addresses, 1) if at != index], truth) as load:
                load.wait(500)
                cluster.stop(index)
                cluster.wait_ended(index)
                if index == 1:
                    publish(tmp_path / "source", "v2")
                load.wait(500)
                cluster.start(index)
                cluster.wait_ready(index)
                wait_for(cluster, "v2")
                wait_whole(cluster, "v2")
                load.wait_all("v2")
            assert load.trouble == []
            assert all(seen in (["v1", "v2"], ["v2"]) for seen in load.seen.values()), load.seen


def killed_holders_fail_no_read(tmp_path, nodes, replication):
    """Check reads from survivors while all owners of some partition but one are killed at once."""
    truth = {"v1": publish(tmp_path / "source", "v1")}
    with running(tmp_path, nodes, replication, TOGETHER) as cluster:
        wait_for(cluster, "v1")
        wait_whole(cluster, "v1")
        left = nodes - replication + 1
        survivors = [node.address for node in cluster.status()[:left]]
        with Load(survivors, truth) as load:
            load.wait(2_000)
            for index in range(left + 1, nodes + 1):
                cluster.kill(index)
            load.wait(20_000)
        assert load.trouble == []
        assert load.reads > 20_000


def test_killed_holders_fail_no_read(tmp_path):
    """Two of three replicas are killed, on a cluster of five nodes."""
    killed_holders_fail_no_read(tmp_path, 5, 3)


def test_a_frozen_holder_fails_no_read(tmp_path):
    """A silent owner with open connections is hedged, and after a while it is asked last."""
    truth = {"v1": publish(tmp_path / "source", "v1")}
    with running(tmp_path, 3, 2, TOGETHER | {"proxy_stage_timeout": "200ms"}) as cluster:
        wait_for(cluster, "v1")
        wait_whole(cluster, "v1")
        survivors = [node.address for node in cluster.status()[:2]]
        with Load(survivors, truth) as load:
            load.wait(2_000)
            cluster.send(3, signal.SIGSTOP)
            load.wait(10_000)
            cluster.send(3, signal.SIGCONT)
            load.wait(10_000)
        assert load.trouble == []
        assert sum(counters(address)["forward_silences"] for address in survivors) > 0


def test_who_comes_late_answers_at_once(tmp_path):
    """A late node forwards reads before it holds any partition, and so does a node without a source."""
    held = publish(tmp_path / "source", "v1")
    with running(tmp_path, 2, 2, {"cluster": NAME}) as cluster:
        wait_for(cluster, "v1")
        join = ["--join", cluster.status()[0].address, "--cluster", NAME, "--profile", "local", *PATIENTLY]
        for name, source, converge in (("slow", tmp_path / "source", "1h"), ("bare", None, "1s")):
            (tmp_path / name).mkdir()
            with NodeProcess(tmp_path / name, *join, "--time-to-converge", converge, source=source) as late:
                late.ready()
                with connect(late.address) as client:
                    data = client.dataset("geo")
                    for key in list(held)[::50]:
                        assert data.get_with_version(key) == (held[key], "v1")
                assert counters(late.address)["forwarded"] > 50


@pytest.mark.parametrize("replication", [1, 2])
def test_a_cluster_that_starts_again_serves_what_was_active(tmp_path, replication):
    """Nodes serve at once from their own files, without the source."""
    held = publish(tmp_path / "source", "v1")
    with running(tmp_path, 3, replication) as cluster:
        wait_for(cluster, "v1")
    (tmp_path / "source").rename(tmp_path / "gone")
    with running(tmp_path, 3, replication) as cluster:
        for node in cluster.status():
            with connect(node.address) as client:
                data = client.dataset("geo")
                for key in list(held)[::50]:
                    assert data.get_with_version(key) == (held[key], "v1")


def test_a_stray_is_never_absent(tmp_path):
    """One record of 200,000 is in the wrong file, behind records that others read: no node ever calls it absent."""
    stray, files = b"stray", [[] for _ in range(3)]
    for number in range(200_000):
        key = b"key%06d" % number
        files[partition("sequins", key, 3)].append(b"%b\tv\n" % key)
    home = partition("sequins", stray, 3)
    files[(home + 1) % 3].insert(6_000, b"%b\tfound\n" % stray)
    place = tmp_path / "source" / "geo" / "v1"
    place.mkdir(parents=True)
    for number, lines in enumerate(files):
        (place / f"part-{number:05}.tsv").write_bytes(b"".join(lines))
    asked = answered = 0
    with running(tmp_path, 3, 1, TOGETHER) as cluster:
        give_up_s = time.monotonic() + PATIENCE_S
        settled: set[str] = set()
        while len(settled) < 3 or answered < 60:
            assert time.monotonic() < give_up_s, (settled, answered)
            for node in cluster.status():
                with connect(node.address) as client:
                    for options in ({}, {"version": "v1"}):
                        asked += 1
                        with contextlib.suppress(GossipKVError):
                            assert client.dataset("geo").get(stray, timeout_ms=500, **options) == b"found"
                            answered += 1
                            settled.add(node.name)
        told = {}
        for node in cluster.status():
            with connect(node.address) as client:
                version = client.call("status", {"database": "geo", "local": True})["geo"]["versions"]["v1"]
                told[node.name] = (version["digest"], version["function"], version["voided"])
        assert len(set(told.values())) == 1, told
    assert asked > answered, "nodes were asked before they could answer"
