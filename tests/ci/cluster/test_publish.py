"""`publish` and `rollback` on three real nodes: killed at any moment and said again, a version is there once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from gossipkv.client import blocking
from tests.ci.cluster.test_datasets import running

if TYPE_CHECKING:
    from pathlib import Path

ROWS = 20_000
KILLS_S = (0.2, 0.3, 0.4, 0.5, 0.6, 0.8)


def start(*arguments: object) -> subprocess.Popen[bytes]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GOSSIPKV_")}
    command = [sys.executable, "-m", "gossipkv", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environ)


def gossipkv(*arguments: object) -> str:
    with start(*arguments) as process:
        out, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
        return out.decode()


def write(place: Path, word: str) -> Path:
    place.mkdir()
    for part in range(4):
        lines = (f"key {number}\t{word} {number}\n" for number in range(part, ROWS, 4))
        (place / f"part-{part}").write_text("".join(lines))
    return place


def values(addresses: list[str]) -> set[bytes | None]:
    """Return what the nodes answer for one key."""
    found = set()
    for address in addresses:
        with blocking.connect(address, timeout_ms=30_000) as client:
            found.add(client.dataset("geo").get("key 7"))
    return found


@pytest.mark.timeout(600)
def test_versions_come_and_go_at_every_node(tmp_path: Path) -> None:
    """The nodes look at their source only when they are asked to, so a publication asks each."""
    first, second = write(tmp_path / "first", "one"), write(tmp_path / "second", "two")
    with running(tmp_path, 3, 2, {"refresh_period": "off"}) as cluster:
        nodes = [node.address for node in cluster.status()]
        asked = ("--node", nodes[0])
        for place, word in ((first, b"one"), (second, b"two")):
            told = json.loads(gossipkv("publish", "geo", place, "--wait", "--json", *asked))
            assert (told["records"], told["serves"]) == (ROWS, True)
            assert values(nodes) == {word + b" 7"}
        gossipkv("rollback", "geo", *asked)
        gossipkv("status", "geo", "--wait", *asked)
        assert values(nodes) == {b"one 7"}
        gossipkv("databases", "release", "geo", *asked)
        gossipkv("status", "geo", "--wait", *asked)
        assert values(nodes) == {b"two 7"}
        third = write(tmp_path / "third", "three")
        for after_s in KILLS_S:
            process = start("publish", "geo", third, "--wait", *asked)
            time.sleep(after_s)
            process.kill()
            process.communicate()
        told = json.loads(gossipkv("publish", "geo", third, "--wait", "--json", *asked))
        assert (told["before"]["records"], told["serves"]) == (ROWS, True)
        assert values(nodes) == {b"three 7"}
    assert len(os.listdir(tmp_path / "source" / "geo")) == 3
