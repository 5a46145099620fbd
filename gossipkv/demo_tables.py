"""The demo's second act: a table keeps what it has acknowledged, whatever node is killed.

The characters of the Unicode database are put into a table with a replica on each of the three nodes, each through the
next node, and what was acknowledged is read at another one at once, in the session that wrote it.  On the way a node is
killed, without a word to those who write.  Then every value that was acknowledged is read again from every node,
the one that was killed among them.

In the end the table moves: a node more gets its share, and the one that was killed is killed again, for good, and
replaced by another.  A session goes on writing and reading meanwhile, at whoever holds a key by then.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import count, islice
from typing import TYPE_CHECKING, Final, Self, final

from gossipkv.errors import Conflict, GossipKVError, Unavailable, Unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gossipkv.client import blocking
    from gossipkv.client.sessions import Session
    from gossipkv.launcher import Cluster, NodeStatus
    from gossipkv.wire.rpc import Value

TABLE: Final = "characters"
PARTITIONS: Final = 16
WRITES: Final = 1_000  # Acknowledged before a node is killed, and again after.
BATCH: Final = 500  # Values that are read again at once.
TIMEOUT_MS: Final = 10_000
PATIENCE_S: Final = 60.0  # Until a node that was started again has what it missed.
TOLD_FAILURES: Final = 3
COUNTERS: Final = 100  # Keys that a session writes and reads while the table moves.
MANY_FAILURES: Final = 100  # No use in going on.
LOOK_S: Final = 0.05  # Between two looks at what has moved.


@final
@dataclass(slots=True)
class Kept:
    """The numbers of the act."""

    writes: int = 0  # Acknowledged: a majority of the replicas had synced them.
    writes_after_kill: int = 0
    unknown: int = 0  # Sent to a node that was killed, and not answered: they may be there or not.
    read_back: int = 0  # At another node at once, in the session that wrote them.
    read_again: int = 0  # Values, from each node.
    lost: int = 0  # Acknowledged, and not read again somewhere.
    moved: int = 0  # Replicas that another node has now.
    asked: int = 0  # By a session, meanwhile.
    failed: int = 0  # Of these; told in `trouble`, too.
    steps_back: int = 0  # What it read was older than what it had written or read.
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
            self._move(doomed, say)
        finally:
            for client in self._clients.values():
                client.close()

    def _move(self, doomed: NodeStatus, say: Callable[[str], None]) -> None:
        """Have a node more, and one replaced, while a session asks; read all of it again from both."""
        kept, (asked, *_) = self._kept, self._nodes
        comer, successor = self._cluster.add(), self._cluster.add()
        for node in (comer, successor):
            self._clients[node.name] = self._cluster.connect(node.index, timeout_ms=TIMEOUT_MS)
        self._await_known()
        replicas = PARTITIONS * len(self._nodes)
        with Asking(self._cluster, kept):
            say(f"added    {comer.name}, while a session goes on asking")
            self._decide(asked, "add_node", comer.name)
            moved = self._await_moved(asked, {*(node.name for node in self._nodes), comer.name}, comer.name)
            say(f"moved    {moved} of {replicas} replicas to {comer.name}; {_so_far(kept)}")
            say(f"killed   {doomed.name}, for good; {successor.name} takes its place")
            self._cluster.kill(doomed.index)
            self._clients.pop(doomed.name).close()
            self._decide(asked, "replace_node", doomed.name, successor.name, {"force": True})
            moved = self._await_moved(asked, {*self._clients}, successor.name)
            say(f"moved    {moved} of {replicas} replicas to {successor.name}; {_so_far(kept)}")
        for node in (comer, successor):
            self._read_again(node.name)
        say(f"read     {len(self._written):,} values from each of both")

    def _decide(self, asked: NodeStatus, method: str, *params: Value) -> None:
        """Change which nodes the table is laid on; who was killed a moment ago may pass for alive yet."""
        give_up_s = time.monotonic() + PATIENCE_S
        while True:
            try:
                self._clients[asked.name].call(method, *params)
            except Conflict:
                if time.monotonic() > give_up_s:
                    raise
                time.sleep(LOOK_S)
            else:
                return

    def _await_moved(self, asked: NodeStatus, wanted: set[str], comer: str) -> int:
        """Return when the table lies on these nodes, and nothing moves; how many replicas the newcomer has."""
        give_up_s = time.monotonic() + PATIENCE_S
        while True:
            hosts, moving = self._hosts(asked)
            if hosts.keys() == wanted and not moving and max(hosts.values()) - min(hosts.values()) <= 1:
                self._kept.moved += hosts[comer]
                return hosts[comer]
            if time.monotonic() > give_up_s:
                raise Unavailable(f"the table has not moved: {dict(hosts)}, and {moving} replicas are on their way")
            time.sleep(LOOK_S)

    def _hosts(self, asked: NodeStatus) -> tuple[Counter[str], int]:
        """How many replicas each node has, and how many are on their way, as a node knows it."""
        hosts, moving = Counter[str](), 0
        match self._clients[asked.name].call("partition_map", TABLE):
            case {"partitions": [*partitions]}:
                for partition in partitions:
                    match partition:
                        case {"assignments": [*assignments]}:
                            for one in assignments:
                                match one:
                                    case {"node": str(node), "state": "AVAILABLE"}:
                                        hosts[node] += 1
                                    case _:
                                        moving += 1
        return hosts, moving

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


@final
class Asking:
    """A session that writes and reads a few keys without a pause, at their owners, and judges what it is shown."""

    def __init__(self, cluster: Cluster, kept: Kept) -> None:
        self._cluster = cluster
        self._kept = kept
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        kept, seen = self._kept, dict[bytes, int]()
        with self._cluster.connect(timeout_ms=TIMEOUT_MS) as client:
            table, session = client.table(TABLE, by_map=True), client.session()
            for number in count():
                if self._is_over.is_set() or kept.failed >= MANY_FAILURES:
                    return
                key = b"counter %d" % (number % COUNTERS)
                try:
                    self._ask(table, session, key, number, seen)
                except GossipKVError as error:
                    kept.failed += 1
                    kept.trouble.append(f"{key.decode()}: {error}")

    def _ask(self, table: blocking.Table, session: Session, key: bytes, number: int, seen: dict[bytes, int]) -> None:
        """Write a key, and read it again.  Raises GossipKVError: one of it has failed."""
        kept = self._kept
        try:
            table.put(key, b"%d" % number, session=session, wait_ms=TIMEOUT_MS // 2)
            seen[key] = number
        except Unknown:  # It was sent, and the node was killed.
            kept.unknown += 1
        kept.asked += 1
        found = table.get(key, session=session, wait_ms=TIMEOUT_MS // 2)
        kept.asked += 1
        shown = -1 if found is None else int(found)
        if shown < seen.get(key, -1):
            kept.steps_back += 1
        seen[key] = shown


def _so_far(kept: Kept) -> str:
    """What a session was told, until now."""
    return f"{kept.asked:,} requests, {kept.failed} failed, {kept.steps_back} steps back"


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
