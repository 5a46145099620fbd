"""Protocols around the tables: the node with its record, its members and its links, and the store underneath."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from gossipkv.register.store import RegisterStore
from gossipkv.replication.store import FollowedStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager
    from pathlib import PurePath

    from gossipkv.environment.seam import Environment
    from gossipkv.errors import GossipKVError, StorageError
    from gossipkv.gossip.member import Member
    from gossipkv.gossip.packets.key_ring import Key
    from gossipkv.gossip.tree.tree import TreeEntry
    from gossipkv.gossip.tree.watch import TreeWatch
    from gossipkv.replication.replica.calm import CalmTable
    from gossipkv.replication.replica.record import RecordWrite
    from gossipkv.replication.replica.replica import Replica
    from gossipkv.storage.engine.manifest import StoreManifest
    from gossipkv.storage.engine.shell import ReadGate
    from gossipkv.wire.results import Completion, NodeAnswer
    from gossipkv.wire.rpc import Value

    Refuse = Callable[[GossipKVError], object]  # Packs an error for the clients of a serving loop.


class LookAt(Protocol):
    """Requests a read of a register with a newer map, of this config id if known; `node` knows the newer map."""

    def __call__(self, register: bytes, node: bytes = b"", config: int = 0) -> object: ...


class HostRecord(Protocol):
    """The part of NODE, the node's record on disk, about its cluster and its tables."""

    @property
    def uuid(self) -> str:
        """The uuid, in 32 hexadecimal digits; it never changes."""

    @property
    def node(self) -> str:
        """The name of the node."""

    @property
    def cluster_id(self) -> str:
        """The cluster id, in 16 hexadecimal digits; empty: none yet."""

    @property
    def pinned(self) -> bool:
        """True if the node never takes another cluster id."""

    @property
    def store(self) -> int:
        """The id of the store; 0: none."""

    @property
    def life(self) -> int:
        """The number of openings of the store, or one less after a crash."""

    @property
    def drew(self) -> str:
        """The cluster id that this node drew; empty: none, or the right to found was erased."""

    @property
    def drew_store(self) -> int:
        """The store with which the node drew the id; 0: it has had no store yet."""


def may_not_found(record: HostRecord, cluster_id: str) -> str | None:
    """Return the reason why a node may not found the catalogue of a cluster (16 hexadecimal digits); None: it may.

    An id is drawn once, by one node, so two sides of a network partition cannot each found a catalogue. A node founds
    nothing before there are tables, so two lone nodes with datasets can still become one cluster. One write to NODE
    keeps the cluster id, its draw (`drew`) and the store of tables at that time (`drew_store`), before the id is sent
    to any node:

        the id is drawn                            drew = the id; drew_store = the store, 0 if there is none yet
        the first store is made, or one in its     drew_store = that store, in the write that names it
        first life is found after a crash
        the id of another cluster is taken         both stay, and count again if the node comes back to the id that it
                                                   drew
        tables are forgotten                       both are erased: this is another node
        the node gets another name                 both are erased: it may be a copy of the node that drew; gossip
                                                   detects two nodes of one name (`gossip.membership.namesakes`)
        NODE is lost                               both are unknown, and count as erased

    Coming back to the drawn id is not rare. When six nodes that know each other start within seconds, the drawer of the
    final id had another id meanwhile in 1 run of 75, and in 1 of 5 if a write takes half a second.

    So the right dies with its store, and nothing restores it: if the right is lost before the founding, `gossipkv
    metadata force` founds the catalogue. If only NODE or only the store is an older copy, `table.store` detects the
    mismatch, or the store has the catalogue. If NODE is from before the founding, and the store as well or gone,
    nothing local shows that: the founder therefore first asks the other members for a catalogue.

    The founder is pinned first (`ClusterView.pin`), makes its store (`TableStore.create`), and calls this last: a node
    that is not pinned may take another id at any moment.
    """
    assert cluster_id, record
    if record.cluster_id != cluster_id:
        own = f"the cluster {record.cluster_id}" if record.cluster_id else "no cluster yet"
        return f"this node belongs to {own}, not to the cluster {cluster_id}"
    if record.drew != cluster_id:
        return (
            f"this node did not draw the cluster id {cluster_id}, or has lost its record of that; the node that drew "
            "the id founds the catalogue; if that node is lost, run `gossipkv metadata force`"
        )
    if record.drew_store != record.store:
        return (
            f"this node drew the cluster id {cluster_id} with the store {record.drew_store:016x}, and its present "
            f"store is {record.store:016x}; a catalogue may exist; to found a new one, run `gossipkv metadata force`"
        )
    return None


class NodeIdentity(Protocol):
    """The record of the node, and its keeper."""

    @property
    def record(self) -> HostRecord:
        """The record as it was written last."""

    @property
    def silence(self) -> StorageError | None:
        """The error that kept this start from being written, so that the node stays silent; None: it was written."""

    def keep(self, *, store: int, life: int) -> None:
        """Write the id and the life of the store to the record, durably; this blocks. Raises `StorageError`."""


class ClusterView(Protocol):
    """The members that gossip knows, and the tree that they share, as tables use it."""

    on_keys: Callable[[], object]  # Called when the key ring was read again.

    def publish(self, path: str, value: bytes = b"") -> None:
        """Publish a key of this node; raises `TooLarge`."""

    def withdraw(self, path: str) -> bool:
        """Remove a key of this node; return True if there was one."""

    def below(self, path: str) -> list[TreeEntry]:
        """List the entries of all nodes below a path."""

    def watch(self, path: str, wake: Callable[[], None]) -> TreeWatch:
        """Call `wake` at each change below a path."""

    @property
    def is_cut_off(self) -> bool:
        """True if no request must wait for other members, whatever their states are."""

    def members_known(self) -> Sequence[Member]:
        """Return all members, this node among them: the same object until one changes."""

    def ring(self) -> Sequence[Key]:
        """Return the keys of the key ring in use, of which the first seals; none: the node has no key ring."""
        ...

    async def pin(self) -> bytes:
        """Fix this node's cluster id for good, and return it. Raises `NotReady` if it has none yet."""


class PeerLinks(Protocol):
    """The connections to other nodes."""

    def store(self, name: str) -> tuple[int, int] | None:
        """Return id and life of a member's store, 0 if it had none; None: there is no connection to the member."""

    def watch(
        self,
        *,
        begun: Callable[[str, bytes], object] | None = None,
        ended: Callable[[str, bytes], object] | None = None,
    ) -> None:
        """Call `begun` and `ended` with the member's name and uuid for each connection that begins or ends."""

    def ask(
        self, name: str, method: str, params: list[Value], timeout_ms: int, complete: Completion[NodeAnswer]
    ) -> None:
        """Ask a member; `complete` is called once, maybe at once."""


class ServingLoops(Protocol):
    """The serving loops, which read calm replicas themselves."""

    @property
    def guards(self) -> Sequence[object]:
        """For each loop after the first, the guard of its twins of files."""

    def begin_writes(self) -> None:
        """Begin the writes that were left with the loops."""

    def expire_from(self, least_ms: int, most_ahead_ms: int, /) -> None:
        """Let records expire by that time of day at least, if it is at most so far ahead of the clock."""

    def serve_tables(self, tables: Iterable[CalmTable], /) -> None:
        """Read the calm replicas of these tables, and of no others, from now on."""


class GatheredWrites(Protocol):
    """The plain writes to one replica that one step of a serving loop has gathered, in order."""

    replica: Replica  # It was calm a moment ago.
    writes: list[RecordWrite]  # Their rows.
    size_bytes: int  # The memory that the requests hold until they are answered.
    waiting: int  # The number of writes that are not answered.
    has_begun: bool
    levels: dict[str, int]  # To each level how many rows there are up to the last one of that level.
    shortest_s: float  # The shortest time-out.
    due: float  # The first deadline of a write that is not answered; inf: all are.

    def begin(self, last_counter: int, now: float) -> None:
        """Take note that the writes are in the open batch, the last row under that counter."""

    def reached(self, level: str) -> None:
        """Answer all writes of a level."""

    def late_levels(self, now: float) -> Sequence[str]:
        """Return the levels of writes whose deadline has passed."""

    def refuse_late(self, level: str, now: float, refusal: object) -> None:
        """Refuse the writes of a level whose deadline has passed, with an error that `Refuse` has packed."""


class OpenStore(FollowedStore, RegisterStore, Protocol):
    """An open store."""

    on_written: Callable[[], object]  # Called when a group of batches is written, before the next one begins.

    @property
    def gate(self) -> ReadGate:
        """The records, for serving loops."""

    def serve(self, guards: Sequence[object], /) -> None:
        """Let further serving loops read, each with the guard of its twins of files. Raises StorageError."""

    @property
    def manifest(self) -> StoreManifest:
        """The synced manifest: id, life, files and spaces of the store."""

    @property
    def closed(self) -> str | None:
        """The reason why the store has closed itself; None: it is open."""

    @property
    def log_damage(self) -> str | None:
        """The damage because of which the log begins late; None: no damage."""

    async def failed(self) -> None:
        """Wait until the store has closed itself; synced data can still be read."""

    def describe(self) -> Mapping[str, int | float]:
        """Return counters and gauges, by the names in `http.metric_table`."""


class OpenStores(Protocol):
    """Opens stores."""

    def __call__(
        self, path: PurePath, environment: Environment, *, expected: tuple[int, int] | None, create: bool
    ) -> AbstractAsyncContextManager[OpenStore]:
        """Open the store at `path` for the block.

        `expected`: its id and its last life; None: any, and with `create` a missing store is made.
        """
