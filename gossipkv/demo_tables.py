"""The demo's second act: a table keeps what it has acknowledged, whatever node is killed.

The characters of the Unicode database are put into a table with a replica on each of the three nodes, each through the
next node, and what was acknowledged is read at another one at once, in the session that wrote it.  On the way a node is
killed, without a word to those who write.  In the end every value that was acknowledged is read again from every node,
the one that was killed among them.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Final, final

from gossipkv.errors import GossipKVError, Unavailable, Unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gossipkv.client import blocking
    from gossipkv.client.sessions import Session
    from gossipkv.launcher import Cluster
    from gossipkv.wire.rpc import Value

TABLE: Final = "characters"
PARTITIONS: Final = 16
WRITES: Final = 1_000  # Acknowledged before a node is killed, and again after.
BATCH: Final = 500  # Values that are read again at once.
TIMEOUT_MS: Final = 10_000
PATIENCE_S: Final = 60.0  # Until a node that was started again has what it missed.
TOLD_FAILURES: Final = 3


@final
@dataclass(slots=True)
class Kept:
    """The numbers of the act."""

    writes: int = 0  # Acknowledged: a majority of the replicas had synced them.
    writes_after_kill: int = 0
    unknown: int = 0  # Sent to the node that was killed, and not answered: they may be there or not.
    read_back: int = 0  # At another node at once, in the session that wrote them.
    read_again: int = 0  # Values, from each node.
    lost: int = 0  # Acknowledged, and not read again somewhere.
    trouble: list[str] = field(default_factory=list)


@final
class Act:
    """Who writes and reads."""

    def __init__(self, cluster: Cluster, records: Mapping[bytes, bytes], kept: Kept) -> None:
        self._cluster = cluster
        self._records = iter(records.items())
        self._kept = kept
        self._written: dict[bytes, bytes] = {}
        self._nodes = cluster.status()
        self._clients: dict[str, blocking.Client] = {}
        self._session: Session | None = None

    def play(self, say: Callable[[str], None]) -> None:
        """Write, have a node killed meanwhile and started again, and read all of it again.

        Raises:
            GossipKVError: it cannot be played to its end.
        """
        kept = self._kept
        self._clients = {node.name: self._cluster.connect(node.index, timeout_ms=TIMEOUT_MS) for node in self._nodes}
        try:
            self._session = next(iter(self._clients.values())).session()
            options: Value = {"kind": "hash", "partitions": PARTITIONS, "replication": len(self._nodes)}
            next(iter(self._clients.values())).call("create_table", TABLE, options)
            say(f"table    {TABLE}: {PARTITIONS} partitions, each with a replica on all {len(self._nodes)} nodes")
            self._await_known()
            self._write(WRITES)
            doomed = self._nodes[1]
            self._cluster.kill(doomed.index)
            say(f"killed   {doomed.name}, after {kept.writes:,} writes; the writer goes on")
            self._write(WRITES)
            kept.writes_after_kill = kept.writes - WRITES
            self._cluster.start(doomed.index)
            self._cluster.wait_ready(doomed.index)
            self._clients[doomed.name].close()
            self._clients[doomed.name] = self._cluster.connect(doomed.index, timeout_ms=TIMEOUT_MS)
            say(f"started  {doomed.name} again: what it missed comes from the others")
            for name in self._clients:
                self._read_again(name)
            say(f"read     {len(self._written):,} values from each node")
        finally:
            for client in self._clients.values():
                client.close()

    def _await_known(self) -> None:
        """Return when every node has heard of the table."""
        for client in self._clients.values():
            while not any(database["name"] == TABLE for database in client.databases()):
                time.sleep(0.01)

    def _write(self, count: int) -> None:
        """Put that many, each through the next node, and read each at the one after that; who is gone is passed by."""
        aim, turn = self._kept.writes + count, 0
        for key, value in self._records:
            names = sorted(self._clients)
            turn += 1
            try:
                self._clients[names[turn % len(names)]].table(TABLE).put(key, value, session=self._session)
            except Unknown:  # It was sent, and the node was killed.
                self._kept.unknown += 1
                continue
            except Unavailable:  # It was never sent: nobody is there.
                continue
            self._written[key] = value
            self._kept.writes += 1
            self._read_back(key, value, names[(turn + 1) % len(names) :] + names)
            if self._kept.writes == aim:
                return

    def _read_back(self, key: bytes, value: bytes, names: list[str]) -> None:
        """Read what was just written at the first of these nodes that is there."""
        for name in names:
            try:
                found = self._clients[name].table(TABLE).get(key, session=self._session, wait_ms=TIMEOUT_MS // 2)
            except Unavailable:  # It was killed.
                continue
            self._kept.read_back += found == value
            if found != value:
                self._kept.trouble.append(f"{key.decode()}: written by a session, which did not read it from {name}")
            return

    def _read_again(self, name: str) -> None:
        """Read all that was acknowledged from a node; one that was away has a while to learn it."""
        table, give_up_s = self._clients[name].table(TABLE), time.monotonic() + PATIENCE_S
        missing = dict(self._written)
        while missing and time.monotonic() < give_up_s:
            for keys in _batches(missing):
                for key, value in zip(keys, table.get_many(keys), strict=True):
                    if value == missing[key]:
                        del missing[key]
        self._kept.read_again += len(self._written) - len(missing)
        self._kept.lost += len(missing)
        for key in islice(missing, TOLD_FAILURES):
            self._kept.trouble.append(f"{key.decode()}: acknowledged, and not read again from {name}")


def _batches(keys: Mapping[bytes, bytes]) -> list[list[bytes]]:
    listed = [*keys]
    return [listed[at : at + BATCH] for at in range(0, len(listed), BATCH)]


def play(cluster: Cluster, records: Mapping[bytes, bytes], say: Callable[[str], None]) -> Kept:
    """Play the act on a cluster; `say` is given lines for people."""
    kept = Kept()
    try:
        Act(cluster, records, kept).play(say)
    except GossipKVError as error:
        kept.trouble.append(str(error))
    return kept
