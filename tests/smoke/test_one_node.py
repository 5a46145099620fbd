"""A real node, from its start to its end."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from gossipkv.errors import UnknownVersion

if TYPE_CHECKING:
    from pathlib import Path
from tests.ci.cluster.test_node_process import NodeProcess, add


def test_the_life_of_a_node(tmp_path: Path) -> None:
    """A node builds and serves its source, sees a version on SIGHUP, drains on SIGTERM, and serves again at once."""
    add(tmp_path / "source", "geo", "1", b"paris\tFrance\nlima\tPeru\n", b"oslo\tNorway\n")
    with NodeProcess(tmp_path, "--refresh-period", "off") as node:
        node.ready()
        node.until_active("geo", "1")
        with node.connect() as client:
            geo = client.dataset("geo")
            assert geo.get("oslo") == b"Norway"
            assert geo.get_many(["lima", "nowhere", "paris"]) == [b"Peru", None, b"France"]
            assert [key for key, _ in geo.scan()] == [b"lima", b"oslo", b"paris"]
            node.add("geo", "2", b"paris\tTexas\n")
            node.process.send_signal(signal.SIGHUP)
            node.until_active("geo", "2")
            assert geo.get_with_version("paris") == (b"Texas", "2")
            assert client.call("get", "geo", "paris", {"version": "1"}) == [b"France", "1"]
            with pytest.raises(UnknownVersion):
                client.call("get", "geo", "paris", {"version": "3"})
        assert node.end()[:2] == (0, "")
    with NodeProcess(tmp_path) as node:
        node.ready()
        with node.connect() as client:
            assert client.dataset("geo").get_with_version("paris") == (b"Texas", "2")
        assert node.end(signal.SIGINT)[0] == 0
