"""A hold on a real node is set, changed and removed in the settings file with SIGHUP, across a SIGKILL."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import pytest

from gossipkv.errors import UnknownVersion
from tests.ci.cluster.test_node_process import PATIENCE_S, NodeProcess, add

if TYPE_CHECKING:
    from pathlib import Path

    from gossipkv.client import blocking

SETTINGS = "[databases.geo]\nhold = '{}'\n"
RETIRE_S = 0.5
TRIES = 20


def test_the_way_back_from_a_bad_version(tmp_path: Path) -> None:
    """A hold takes effect without a restart and survives a kill; without it the newest version is active again."""
    file = tmp_path / "gossipkv.toml"
    file.write_text("")
    flags = ["--refresh-period", "off", "--retire-after", "10m", "--config", str(file)]
    add(tmp_path / "source", "geo", "1", b"paris\tFrance\n")
    with NodeProcess(tmp_path, *flags) as node:
        node.ready()
        node.until_active("geo", "1")
        node.add("geo", "2", b"paris\tTexas\n")
        node.process.send_signal(signal.SIGHUP)
        node.until_active("geo", "2")
        file.write_text(SETTINGS.format("1"))
        node.process.send_signal(signal.SIGHUP)
        node.until_active("geo", "1")
        with node.connect() as client:
            assert client.dataset("geo").get_with_version("paris") == (b"France", "1")
            assert client.call("get", "geo", "paris", {"version": "2"}) == [b"Texas", "2"]
            assert client.status("geo")["geo"]["hold"] == "1"
        assert node.end(signal.SIGKILL)[0] == -signal.SIGKILL
    with NodeProcess(tmp_path, *flags) as node:
        node.ready()
        with node.connect() as client:
            assert client.dataset("geo").get_with_version("paris") == (b"France", "1")
        file.write_text(SETTINGS.format("3"))
        node.process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + PATIENCE_S
        with node.connect() as client:
            while (told := client.status("geo")["geo"])["error"] is None:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            missing = "the held version 3 is neither on this node nor at the source"
            assert told["error"] == f"{missing}; version 1 is still served"
            assert told["active"] == "1"
        file.write_text("")
        node.process.send_signal(signal.SIGHUP)
        node.until_active("geo", "2")
        assert node.end()[0] == 0


@pytest.mark.parametrize("method", ["get", "scan"])
def test_what_is_asked_for_by_name_is_kept(tmp_path: Path, method: str) -> None:
    """Reads by version keep a retired version, in the serving loop and through Python; without reads it is dropped."""
    flags = ["--refresh-period", "off", "--retire-after", f"{RETIRE_S}s", "--profile", "local"]
    for database in ("geo", "idle"):
        add(tmp_path / "source", database, "1", b"paris\tFrance\n")
    with NodeProcess(tmp_path, *flags) as node:
        node.ready()
        for database in ("geo", "idle"):
            node.until_active(database, "1")
        with node.connect() as client:
            old = next(old for old in range(1, TRIES) if is_kept(node, client, old, method))
            deadline = time.monotonic() + PATIENCE_S
            while str(old) in client.status("geo")["geo"]["versions"]:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            with pytest.raises(UnknownVersion):
                ask(client, method, old)


def ask(client: blocking.Client, method: str, version: int) -> object:
    if method == "get":
        return client.call("get", "geo", "paris", {"version": str(version)})
    return client.call("scan", "geo", {"version": str(version)})


def is_kept(node: NodeProcess, client: blocking.Client, old: int, method: str) -> bool:
    """Read an old version for longer than an unread old version is kept; return True if it was kept.

    False means that the version went, as it may if this process stood still between two reads.
    """
    before_s = asked_s = time.monotonic()
    try:
        # The databases follow one another, so that the second version is dropped after the first would be.
        for database in ("geo", "idle"):
            node.add(database, str(old + 1), b"paris\tTexas\n")
            client.refresh(database)
            while str(old) in client.status(database)[database]["versions"]:
                before_s, asked_s = asked_s, time.monotonic()
                ask(client, method, old)
                if database == "geo" and client.status("geo")["geo"]["active"] == str(old + 1):
                    break
        ask(client, method, old)
    except UnknownVersion:
        if time.monotonic() - before_s < RETIRE_S:
            raise
        return False
    return True
