"""Sources that differ in one byte: nodes keep answering from the agreed content and report the difference."""

from __future__ import annotations

import contextlib
import signal
import time
from typing import TYPE_CHECKING

from gossipkv.keyspace.partitioner import partition
from tests.ci.cluster.node_process import PATIENCE_S, NodeProcess, connect, wait_for

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

PARTITIONS = 6
KEYS = [b"key%03d" % number for number in range(60)]
FLAGS = (
    *("--cluster", "differing", "--replication", "2", "--min-replication", "1", "--refresh-period", "200ms"),
    *("--time-to-converge", "1s", "--build-priority", "normal", "--proxy-timeout", "20s"),
)


def publish(source: Path, version: str, value: bytes) -> None:
    """Publish a version at a node's source; its files have the same size and age for any value."""
    place = source / "geo" / f"_{version}"
    place.mkdir(parents=True)
    lines: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
    for key in KEYS:
        lines[partition("sequins", key, PARTITIONS)].append(b"%b\t%b\n" % (key, value))
    for number, part in enumerate(lines):
        (place / f"part-{number:05}.tsv").write_bytes(b"".join(part))
    place.rename(source / "geo" / version)


def answers(address: str, times: int) -> dict[bytes, set[bytes | None]]:
    """Return a node's answers for each key over many requests."""
    found: dict[bytes, set[bytes | None]] = {key: set() for key in KEYS}
    with connect(address) as client:
        data = client.dataset("geo")
        for _ in range(times):
            for key, value in zip(KEYS, data.get_many(KEYS), strict=True):
                found[key].add(value)
                found[key].add(data.get(key))
    return found


def wait_named(nodes: Sequence[NodeProcess], name: str) -> None:
    """Return when `status` of every node names `name` as a node whose files differ."""
    give_up_s = time.monotonic() + PATIENCE_S
    for node in nodes:
        with connect(node.address) as client:
            while True:
                disputes = client.status("geo")["geo"]["versions"]["2"].get("disputes", [])
                if any(name in dispute["nodes"] for dispute in disputes):
                    break
                assert time.monotonic() < give_up_s, client.status()
                time.sleep(0.05)


def test_an_owner_that_comes_after_the_switch_with_other_bytes(tmp_path: Path) -> None:
    """No client gets the differing bytes, all nodes report the difference, and a restart changes nothing."""
    with contextlib.ExitStack() as stack:
        nodes: list[NodeProcess] = []
        for number in (1, 2, 3):
            place = tmp_path / str(number)
            place.mkdir()
            publish(place / "source", "1", b"one")
            joins = ["--join", nodes[0].address] if nodes else []
            flags = [*FLAGS, "--node", f"n{number}", *joins]
            nodes.append(stack.enter_context(NodeProcess(place, *flags, source=place / "source")))
            nodes[-1].ready()
        for node in nodes:
            wait_for(node.address, "geo", "1")
        for number in (1, 2):
            publish(tmp_path / str(number) / "source", "2", b"two")
        for node in nodes:
            wait_for(node.address, "geo", "2")
        publish(tmp_path / "3" / "source", "2", b"TWO")
        for node in nodes:
            assert set().union(*answers(node.address, 30).values()) == {b"two"}
        wait_named(nodes, "n3")
        for node in nodes:
            assert set().union(*answers(node.address, 30).values()) == {b"two"}
            assert "contents_differ" in node.said()
        first = tmp_path / "1"
        nodes[0].stop(signal.SIGKILL)
        flags = [*FLAGS, "--node", "n1", "--join", nodes[1].address]
        nodes[0] = stack.enter_context(NodeProcess(first, *flags, source=first / "source"))
        nodes[0].ready()
        for node in nodes:
            assert set().union(*answers(node.address, 10).values()) == {b"two"}
        for number in (1, 2, 3):
            publish(tmp_path / str(number) / "source", "3", b"six")
        for node in nodes:
            wait_for(node.address, "geo", "3")
