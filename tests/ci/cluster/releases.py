"""Releases: copies of the package that speak other protocol versions, and a cluster that rolls from one to another."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import gossipkv
from gossipkv.launcher import Place
from tests.ci.cluster.table_nodes import until
from tests.ports import quiet_ports

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gossipkv.launcher import Cluster
    from gossipkv.protocol import ProtocolVersions
    from tests.ci.cluster.table_records import Load

LEAST = 60  # Writes and reads between two steps.


class Releases:
    """The releases of the nodes of one cluster; each node reads at its start which one it runs."""

    def __init__(self, place: Path, first: ProtocolVersions, nodes: int = 3) -> None:
        self._place = place
        self._nodes = range(1, nodes + 1)
        for index in self._nodes:
            self.install(index, first)

    def places(self) -> list[Place]:
        """Return the nodes' places in the cluster: each starts with the import path of its release."""
        script = 'export PYTHONPATH="$0"; exec "$@"'
        starts = [["sh", "-c", script, str(self._release(index))] for index in self._nodes]
        return [Place(port=port, wrapper=start) for port, start in zip(quiet_ports(len(starts)), starts, strict=True)]

    def install(self, index: int, versions: ProtocolVersions) -> None:
        """Let a node run a release of these versions from its next start on."""
        release = self._release(index)
        release.unlink(missing_ok=True)
        release.symlink_to(self._copy(versions))

    def _release(self, index: int) -> Path:
        return self._place / f"release-of-n{index}"

    def _copy(self, versions: ProtocolVersions) -> Path:
        copy = self._place / f"speaks-{versions.oldest}-to-{versions.newest}"
        if not copy.exists():
            package = copy / "gossipkv"
            shutil.copytree(Path(gossipkv.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
            module = package / "protocol.py"
            text = module.read_text()
            for name, version in zip(("MIN", "MAX"), versions, strict=True):
                text, count = re.subn(
                    rf"^(PROTOCOL_{name}: Final) = \d+$", rf"\1 = {version}", text, flags=re.MULTILINE
                )
                assert count == 1, name
            module.write_text(text)
        return copy


def roll(
    cluster: Cluster,
    releases: Releases,
    to: ProtocolVersions,
    load: Load,
    *,
    agreed: Sequence[int],
    end: Callable[[int], object] | None = None,
) -> None:
    """Restart one node after the other with another release; after each, all members write in a version of `agreed`."""
    for index, version in zip((1, 2, 3), agreed, strict=True):
        (end or cluster.stop)(index)
        load.goes_on(0.5, LEAST)
        releases.install(index, to)
        cluster.start(index)
        for node in cluster.status():
            with cluster.connect(node.index) as client:
                info = until(client.info, lambda info, version=version: info["protocol"] == version)
                assert node.index != index or info["speaks"] == [*to]
        load.goes_on(0.5, LEAST)
