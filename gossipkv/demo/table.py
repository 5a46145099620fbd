"""Second act: a table keeps all acknowledged writes while nodes are killed, and moves while it is used.

Characters of the Unicode database are put into a table with a replica on each of the three nodes, a few at once through
the next node, and every acknowledged value is read at another node at once, in the session that wrote it.  On the way a
node is killed, and the writer goes on.  Then every acknowledged value is read again from every node, including the
restarted one.

In the end the table moves: a new node gets its share, and the node that was killed is killed again, for good, and
replaced by another.  A session goes on writing and reading meanwhile, at the present owner of each key.
"""

from __future__ import annotations

import threading
from functools import partial
from itertools import count, islice
from typing import TYPE_CHECKING, Final, Self, final

from gossipkv.demo.outcome import MAX_TOLD_FAILURES, Required
from gossipkv.demo.stage import TIMEOUT_MS, hosts
from gossipkv.errors import GossipKVError, Unavailable, Unknown

if TYPE_CHECKING:
    from gossipkv.client import blocking
    from gossipkv.client.sessions import Session
    from gossipkv.demo.stage import Stage
    from gossipkv.launcher import NodeStatus
    from gossipkv.wire.rpc import Value

TABLE: Final = "characters"
PARTITIONS: Final = 16
REPLICAS: Final = 3  # One on each node.
WRITES: Final = 100  # Acknowledged before a node is killed, and again after.
PUT_BATCH: Final = 10  # Values that are put at once.
MIN_ASKED: Final = 100  # Least number of a session's requests about the moves.
COUNTERS: Final = 100  # Keys that a session writes and reads while the table moves.
MAX_FAILURES: Final = 100  # Failures after which the act ends.

REQUIRED: Final = (
    Required("writes", 2 * WRITES, None, "writes acknowledged to a table"),
    Required("writes_after_kill", WRITES, None, "writes acknowledged after a kill"),
    Required("read_back", 2 * WRITES, None, "values read back at another node"),
    Required("read_again", 5 * 2 * WRITES, None, "values read again from each node"),
    Required("moved", PARTITIONS * REPLICAS // 2, None, "replicas moved to other nodes"),
    Required("asked", MIN_ASKED, None, "requests of a session during moves"),
    Required("lost", 0, 0, "lost writes after acknowledgement"),
)


def play(stage: Stage) -> None:
    """Play the act.

    Raises:
        GossipKVError: it cannot be played to its end.
    """
    act = _Act(stage)
    try:
        act.keep()
        act.move()
    finally:
        act.close()


@final
class _Act:
    """The writer and its clients, one for each node that should answer."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._counts = stage.outcome.counts
        self._records = iter(stage.editions[-1].records.items())
        self._written: dict[bytes, bytes] = {}
        self._clients: dict[str, blocking.Client] = {}
        self._doomed, self._asked, _ = nodes = stage.cluster.wait_ready(1, 2, 3)
        for node in nodes:
            self._connect(node)
        self._client = self._clients[self._asked.name]
        self._session: Session = self._client.session()

    def keep(self) -> None:
        """Write while a node is killed and started again, and read everything again from all nodes."""
        stage, counts, doomed = self._stage, self._counts, self._doomed
        options: Value = {"kind": "hash", "partitions": PARTITIONS, "replication": REPLICAS}
        self._client.call("create_table", TABLE, options)
        stage.say(f"table    {TABLE}: {PARTITIONS} partitions, each with a replica on all {REPLICAS} nodes")
        self._await_known()
        # They start while the act goes on.
        self._comer, self._successor = (stage.cluster.add(wait=False) for _ in range(2))
        self._write(WRITES)
        stage.cluster.kill(doomed.index)
        self._clients.pop(doomed.name).close()
        stage.say(f"killed   {doomed.name}, after {counts['writes']:,} writes; the writer goes on")
        self._write(WRITES)
        counts["writes_after_kill"] = counts["writes"] - WRITES
        stage.cluster.start(doomed.index, wait=False)
        stage.cluster.wait_ready()
        self._connect(doomed)
        stage.say(f"started  {doomed.name} again: the others send the records that it missed")
        self._read_again(*self._clients)

    def move(self) -> None:
        """Add a node and replace one while a session asks, and read everything again from both newcomers."""
        stage, doomed, comer, successor = self._stage, self._doomed, self._comer, self._successor
        self._connect(comer)
        self._connect(successor)
        self._await_known()
        with _SessionTraffic(stage):
            stage.say(f"added    {comer.name}, while a session writes and reads")
            stage.until_taken("add_node is accepted", lambda: self._client.call("add_node", comer.name))
            self._await_moved(comer, but=successor)
            stage.cluster.kill(doomed.index)
            self._clients.pop(doomed.name).close()
            stage.say(f"killed   {doomed.name} for good; {successor.name} replaces it")
            names = (doomed.name, successor.name)
            stage.until_taken(
                "replace_node is accepted", lambda: self._client.call("replace_node", *names, {"force": True})
            )
            self._await_moved(successor)
        self._read_again(comer.name, successor.name)

    def close(self) -> None:
        """Close the clients."""
        for client in self._clients.values():
            client.close()

    def _connect(self, node: NodeStatus) -> None:
        if (client := self._clients.pop(node.name, None)) is not None:
            client.close()
        self._clients[node.name] = self._stage.cluster.connect(node.index, timeout_ms=TIMEOUT_MS)

    def _await_known(self) -> None:
        for client in self._clients.values():
            self._stage.until("each node knows the table", partial(_knows_table, client))

    def _await_moved(self, comer: NodeStatus, but: NodeStatus | None = None) -> None:
        """Return when the table lies evenly on all nodes with a client, except for `but`, and nothing moves."""
        wanted = {name for name in self._clients if but is None or name != but.name}
        replicas = 0

        def has_moved() -> bool:
            nonlocal replicas
            _, found, is_settled = hosts(self._client, TABLE)
            replicas = found[comer.name]
            return found.keys() == wanted and is_settled and max(found.values()) - min(found.values()) <= 1

        self._stage.until("the table has moved", has_moved)
        counts = self._counts
        counts["moved"] += replicas
        self._stage.say(
            f"moved    {replicas} of {PARTITIONS * REPLICAS} replicas to {comer.name}; {counts['asked']:,} requests, "
            f"{counts['failures']} failed, {counts['steps_back']} steps back"
        )

    def _write(self, writes: int) -> None:
        """Put values until that many are acknowledged: a batch through the next node, read at once at the one after."""
        aim = self._counts["writes"] + writes
        names = sorted(self._clients)
        batches = iter(lambda: dict(islice(self._records, PUT_BATCH)), {})
        for turn, records in enumerate(batches):
            try:
                self._clients[names[turn % len(names)]].table(TABLE).put_many(records.items(), session=self._session)
            except Unknown:  # The node was killed after the puts were sent.
                self._counts["unknown"] += len(records)
                continue
            except Unavailable:  # The node is down, and the puts were never sent.
                continue
            self._written |= records
            self._counts["writes"] += len(records)
            self._read_back(records, names[(turn + 1) % len(names) :] + names)
            if self._counts["writes"] == aim:
                return

    def _read_back(self, records: dict[bytes, bytes], names: list[str]) -> None:
        """Read what was just written at the first of these nodes that is up."""
        for name in names:
            table = self._clients[name].table(TABLE)
            try:
                found = table.get_many([*records], session=self._session, wait_ms=TIMEOUT_MS // 2)
            except Unavailable:  # The node was killed.
                continue
            for (key, value), read in zip(records.items(), found, strict=True):
                self._counts["read_back"] += read == value
                if read != value:
                    self._stage.outcome.fail(f"{key.decode()}: a session wrote it and did not read it from {name}")
            return

    def _read_again(self, *names: str) -> None:
        """Read every acknowledged value from these nodes; a node that was away has a while to catch up."""
        for name in names:
            table, missing = self._clients[name].table(TABLE), dict(self._written)

            def is_read(table: blocking.Table = table, missing: dict[bytes, bytes] = missing) -> bool:
                keys = [*missing]
                for key, value in zip(keys, table.get_many(keys), strict=True):
                    if value == missing[key]:
                        del missing[key]
                return not missing

            try:
                self._stage.until(f"{name} has every value", is_read)
            except Unavailable:
                for key in islice(missing, MAX_TOLD_FAILURES):
                    self._stage.outcome.fail(
                        f"{key.decode()}: the write was acknowledged, but {name} did not return it"
                    )
            self._counts["read_again"] += len(self._written) - len(missing)
            self._counts["lost"] += len(missing)
        self._stage.say(f"read     {len(self._written):,} values from each of {', '.join(names)}")


@final
class _SessionTraffic:
    """A session that writes and reads a few keys without a pause, at their owners, and judges every answer."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        outcome, seen = self._stage.outcome, dict[bytes, int]()
        with self._stage.cluster.connect(timeout_ms=TIMEOUT_MS) as client:
            table, session = client.table(TABLE, by_map=True), client.session()
            for number in count():
                has_asked = outcome.counts["asked"] >= MIN_ASKED
                if (self._is_over.is_set() and has_asked) or outcome.counts["failures"] >= MAX_FAILURES:
                    return
                key = b"counter %d" % (number % COUNTERS)
                try:
                    self._ask(table, session, key, number, seen)
                except GossipKVError as error:
                    outcome.fail(f"{key.decode()}: {error}")

    def _ask(self, table: blocking.Table, session: Session, key: bytes, number: int, seen: dict[bytes, int]) -> None:
        """Write a key and read it again.

        Raises:
            GossipKVError: one of the two failed.
        """
        counts = self._stage.outcome.counts
        try:
            table.put(key, b"%d" % number, session=session, wait_ms=TIMEOUT_MS // 2)
            seen[key] = number
        except Unknown:  # The node was killed after the put was sent.
            counts["unknown"] += 1
        found = table.get(key, session=session, wait_ms=TIMEOUT_MS // 2)
        counts["asked"] += 2
        shown = -1 if found is None else int(found)
        counts["steps_back"] += shown < seen.get(key, -1)
        seen[key] = shown


def _knows_table(client: blocking.Client) -> bool:
    return any(database["name"] == TABLE for database in client.databases())
