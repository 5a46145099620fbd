"""Sessions that ask a different node each time, on nodes that crash, and the nodes' part in them.

Tokens, readiness and token compaction are production's (`table.session.readiness`, `token`,
`records.token_compaction`); finding a host is not: a session asks any node, which answers from its replica or refuses.
`sessions` judges the answers.
"""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Final, NamedTuple, cast, final

import trio

from gossipkv.errors import GossipKVError, Unavailable, WriteLost
from gossipkv.replication.replica import clock, record
from gossipkv.replication.replica.acks import MAJORITY, ONE
from gossipkv.replication.replica.keys import RECORD
from gossipkv.replication.replica.record import RecordWrite
from gossipkv.table.records.forward import held
from gossipkv.table.records.token_compaction import TokenCompactor
from gossipkv.table.session.readiness import ReplicaReadiness, WantedClock
from gossipkv.table.session.token import TableSeen, decode, only, seen_in
from tests.world.metadata.chance import happens
from tests.world.replication.ranges import SESSION_KEYS, part_of
from tests.world.replication.register import TOKEN_KEYS
from tests.world.replication.sessions import READS, WRITES, Did, Guarantees

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from gossipkv.replication.replica.replica import Replica
    from gossipkv.table.participant.participant import MetadataParticipant
    from gossipkv.table.records.router import Router
    from gossipkv.table.session.token import Token
    from tests.world.replication.node import Life, Node
    from tests.world.replication.world import Cluster

TABLE: Final = b"tableid_tableid_"
MAX_TOKEN: Final = 64 << 10
KEYS: Final = tuple(b"session%d" % number for number in range(3))  # The session keys of each partition.
PATIENCE_S: Final = 3.0  # After that an answer counts as unknown.
WAITS_S: Final = (0.0, 0.3)


class Asked(NamedTuple):
    """A session's request to a node."""

    partition: int
    key: bytes
    token: bytes
    wait_s: float
    value: bytes | None = None
    level: str = ONE


class Answer:
    """A node's answer, once there is one."""

    def __init__(self) -> None:
        self.is_there = False
        self.error: GossipKVError | None = None
        self.partition: int | None = None  # The partition of the answering replica.
        self.value: bytes | None = None
        self.token = b""

    def fails(self, error: GossipKVError) -> None:
        self.is_there, self.error = True, error

    def shows(self, value: bytes | None, token: bytes) -> None:
        """Set the answer to a value; a write has None."""
        self.is_there, self.value, self.token = True, value, token


@final
class Serving:
    """The session services of one life of a node."""

    def __init__(self, life: Life) -> None:
        self._life = life
        replication = life.replication
        participant = SimpleNamespace(
            service=SimpleNamespace(token_keys=TOKEN_KEYS, replicating=lambda: replication, replication=replication),
            poll=SimpleNamespace(has_ended=lambda _: False),
        )
        nobody = cast("Router", None)
        self._settling = TokenCompactor(nobody, cast("MetadataParticipant", participant), MAX_TOKEN)
        self._ready = ReplicaReadiness(lambda: replication, life.look_at)

    def _begin(self, asked: Asked, answer: Answer, do: Callable[[Replica, Token], object]) -> None:
        try:
            copy = held(self._life.replication.replicas, TABLE, asked.partition, asked.key)
            answer.partition = copy.identity.partition
            token = self._settling.read(asked.token)
            wanted = WantedClock(token, self._life.replication.now() + asked.wait_s)
            self._ready.begin([copy], wanted, lambda: do(copy, token), answer.fails)
        except GossipKVError as error:
            answer.fails(error)

    def read(self, asked: Asked, answer: Answer) -> None:
        """Read a key once the replica here is ready."""

        def do(copy: Replica, token: Token) -> None:
            data = self._life.replication.get(copy.space, RECORD + asked.key)
            shown = seen_in(TABLE, copy.taken_config, [] if data is None else [data])
            answer.shows(None if data is None else record.value(data), self._settling.write(token, shown))

        self._begin(asked, answer, do)

    def write(self, number: int, asked: Asked, answer: Answer) -> None:
        """Write a key once the replica here is ready, after all that the session has seen."""

        def do(copy: Replica, token: Token) -> None:
            def on_end(error: GossipKVError | None) -> None:
                if error is not None:
                    answer.fails(error)
                else:
                    answer.shows(None, self._settling.write(token, {TABLE: seen}))

            others = only(token, lambda table, origin, _: table != TABLE or origin not in copy.assigned)
            one = RecordWrite(asked.key, asked.value, self._settling.kept(others))
            counters = self._life.write(number, asked.partition, [one], asked.level, 2.0, on_end=on_end)
            seen = TableSeen(copy.config, clock.of(counters.items()))

        self._begin(asked, answer, do)


@final
class Hopping:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._tokens: dict[int, bytes] = {}
        self._begun: Counter[int] = Counter()  # The restarts of each session, after data that it had seen was lost.
        self._did: list[list[Did]] = []
        self._values = 0
        self._kept: set[int] = set()  # Force-joined ranges whose first records were added to the history.

    async def hop(self, name: int, random: Random, pause_s: float) -> None:
        """Run a session that asks a random node each time."""
        cluster = self._cluster
        self._tokens[name] = b""
        while True:
            await trio.sleep(random.expovariate(1 / pause_s))
            partition, node = random.choice([*cluster.map]), random.choice(cluster.nodes)
            shard = cluster.witness.moves.lineage.shard(partition)
            key, wait_s = b"%d %s" % (shard, random.choice(KEYS)), random.choice(WAITS_S)
            if cluster.is_range:
                key = random.choice(SESSION_KEYS)
                known = node.known.get(cluster.table) if happens(random, 0.5) else None
                partition = part_of(cluster.register.view(cluster.table, known), key).partition.id
            if happens(random, 0.5):
                await self._read(name, node, partition, key, wait_s)
            else:
                self._values += 1
                value = None if happens(random, 0.25) else b"%d" % self._values
                level = random.choice((ONE, MAJORITY))
                await self._write(name, node, Asked(partition, key, self._tokens[name], wait_s, value, level))

    async def _read(self, name: int, node: Node, partition: int, key: bytes, wait_s: float) -> str | None:
        """Read a key; return the code of the error if the read was refused."""
        life = node.life
        if life is None or life.is_over or node.uuid not in self._cluster.network.lives:
            return Unavailable.code
        answer = Answer()
        life.serving.read(Asked(partition, key, self._tokens[name], wait_s), answer)
        if not await self._ends(name, answer, life) or answer.error is not None:
            return Unavailable.code if answer.error is None else answer.error.code
        self._is_told(name, answer)
        self._tokens[name] = answer.token
        self._did.append([Did(self._session(name), READS, self._key(answer, partition, key), answer.value)])
        return None

    def _is_told(self, name: int, answer: Answer) -> None:
        """Check that an answered session has seen nothing that a force-join lost."""
        refounded = self._cluster.witness.moves.refounded
        ends = refounded.ends.get(refounded.root(answer.partition or 0), {})
        for seen in decode(self._tokens[name], TOKEN_KEYS).values():
            for origin, count in clock.entries(seen.clock):
                if count > ends.get(origin, count):
                    words = f"session {name} has seen {(origin, count)}, and is not told that it is lost"
                    self._cluster.witness.found("sessions", words)

    async def _write(self, name: int, node: Node, asked: Asked) -> None:
        life, answer = node.life, Answer()
        if life is None or life.is_over or node.uuid not in self._cluster.network.lives:
            return
        session = self._session(name)
        life.serving.write(self._cluster.number(), asked, answer)
        key = self._key(answer, asked.partition, asked.key)
        # Other sessions may read it before the answer.
        self._did.append([Did(session, WRITES, key, asked.value, is_known=False)])
        if await self._ends(name, answer, life) and answer.error is None:
            self._is_told(name, answer)
            self._tokens[name] = answer.token
            self._did.append([Did(session, WRITES if asked.value is None else READS, key, asked.value)])

    def _key(self, answer: Answer, partition: int, key: bytes) -> tuple[int, bytes]:
        """Return a key's name in the whole table: force-joined partitions have keys of their own."""
        refounded = self._cluster.witness.moves.refounded
        root = refounded.root(partition if answer.partition is None else answer.partition)
        if root not in refounded.ends:
            return 0, key
        kept = refounded.base(root) if root not in self._kept else {}
        self._kept.add(root)
        self._did += [[Did(root, WRITES, (root, one), record.value(data))] for one, data in kept.items()]
        return root, key

    def _session(self, name: int) -> tuple[int, int]:
        return name, self._begun[name]

    async def _ends(self, name: int, answer: Answer, life: Life) -> bool:
        """Wait for an answer; return False if none comes."""
        with trio.move_on_after(PATIENCE_S):
            while not answer.is_there and not life.is_over:
                await trio.sleep(0.005)
        counts = self._cluster.witness.counts
        counts[f"sessions: {'lost' if not answer.is_there else answer.error.code if answer.error else 'done'}"] += 1
        if isinstance(answer.error, WriteLost):
            self._begun[name] += 1
            self._tokens[name] = b""
            self._cluster.witness.moves.called_lost(answer.error.details)
        return answer.is_there and not life.is_over

    async def end(self) -> None:
        """Check that, with all replicas equal, every node answers every session, whose tokens are settled."""
        cluster, witness = self._cluster, self._cluster.witness
        for name in sorted(self._tokens) if not cluster.is_short else ():
            for node in (one for one in cluster.nodes if one.life is not None):
                for partition, placed in cluster.map.items():
                    if any(host.node == node.uuid and host.available for host in placed.hosts):
                        key = KEYS[0]
                        if cluster.is_range:  # A key that was never written.
                            key = witness.moves.lineage.bounds[partition].first + b"\0"
                        self._is_settled(name, node, await self._read(name, node, partition, key, 0.0))
        for fault in Guarantees().judge(self._did):
            witness.found("sessions", fault)

    def _is_settled(self, name: int, node: Node, code: str | None) -> None:
        """Check a node's answer to a session, and the rest of the session's token."""
        assert node.life is not None
        seen = decode(self._tokens[name], TOKEN_KEYS).values()
        left = {origin for one in seen for origin, _ in clock.entries(one.clock)}
        left &= {origin for copy in node.life.replication.replicas.by_partition.values() for origin in copy.named}
        if code not in {None, WriteLost.code} or left:
            what = f"has {left} in its token" if code is None else f"is refused: {code}"
            self._cluster.witness.found("sessions", f"session {name} at {node.uuid.hex()[:4]} {what}")
