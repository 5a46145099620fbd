"""The node that hosts the tables, as far as they know it: its record, the members around it, and the ways to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gossipkv.errors import StorageError
    from gossipkv.gossip.member import Member
    from gossipkv.gossip.tree.tree import TreeEntry
    from gossipkv.gossip.tree.watch import TreeWatch
    from gossipkv.wire.results import OnAnswer
    from gossipkv.wire.rpc import Value


class HostRecord(Protocol):
    """What a node's document NODE says of its cluster and its tables."""

    @property
    def uuid(self) -> str:
        """32 hexadecimal digits, for life."""
        ...

    @property
    def node(self) -> str:
        """The name."""
        ...

    @property
    def cluster_id(self) -> str:
        """16 hexadecimal digits; empty: none yet."""
        ...

    @property
    def pinned(self) -> bool:
        """It never takes another cluster id."""
        ...

    @property
    def store(self) -> int:
        """The id of the store; 0: none."""
        ...

    @property
    def life(self) -> int:
        """How often the store was opened, or once less."""
        ...

    @property
    def drew(self) -> str:
        """The cluster id that this node drew; empty: none, or it founds nothing any more."""
        ...

    @property
    def drew_store(self) -> int:
        """The store under which it did; 0: it has had none yet."""
        ...


def may_not_found(record: HostRecord, cluster_id: str) -> str | None:
    """Why this node may not found the catalogue of a cluster, given in 16 hexadecimal digits; None: it may.

    An id is drawn once, by one node, so two sides of a cut cannot each found a catalogue; and a node founds nothing
    before there are tables, so two lone nodes with datasets can still become one cluster.  NODE keeps which id was
    drawn (`drew`) in the same write as the id itself, which is told to nobody before, and the store of tables under
    which (`drew_store`):

        the id is drawn                            drew = the id; drew_store = the store, 0 if there is none yet
        the first store is made, or one in its     drew_store = that store, in the write that names it
        first life is found after a crash
        the id of another cluster is taken         both stay, and count again if the node comes back to the id that it
                                                   drew
        a backup of tables is put back             both are erased, before the store enters its place: the backup may
                                                   have a catalogue
        tables are forgotten                       both are erased: it is another node
        the node gets another name                 both are erased: it may be a copy of the one that drew; of two under
                                                   one name gossip tells (`gossip.membership.namesakes`)
        NODE is lost                               both are unknown, and count as erased

    Coming back is no rarity: of six nodes that start within seconds, told of each other in all ways, the one that drew
    the id on which they end had another meanwhile in 1 run of 75, and in 1 of 5 where a write takes half a second.

    So the right dies with the store that it belongs to, and nothing brings it back: when it is gone before anything was
    founded, `gossipkv metadata force` founds anew.  An older copy of NODE beside the store, or of the store beside
    NODE, is known for what it is (`tables`), or finds the catalogue in the store.  An older copy of NODE, of before the
    founding, whose store is of its age too, or gone, is not: whoever is to found looks first whether another member
    knows of a catalogue.

    Who founds is pinned first (`Gossiping.pin`), then has its store (`Tables.create`), and asks here last, since a node
    that is not pinned may take another id at any moment.
    """
    assert cluster_id, record
    if record.cluster_id != cluster_id:
        own = f"the cluster {record.cluster_id}" if record.cluster_id else "no cluster yet"
        return f"this node is of {own}, not of the cluster {cluster_id}"
    if record.drew != cluster_id:
        return (
            f"this node did not draw the id {cluster_id} of its cluster, or has lost the note that it did: the one "
            "that drew it founds the catalogue; if that one is gone, `gossipkv metadata force` founds it anew"
        )
    if record.drew_store != record.store:
        return (
            f"this node drew the id {cluster_id} of its cluster with the store {record.drew_store:016x}, and has "
            f"{record.store:016x} now, which may have a catalogue; `gossipkv metadata force` founds it anew"
        )
    return None


class NodeIdentity(Protocol):
    """The record, and who keeps it."""

    @property
    def record(self) -> HostRecord:
        """As it is kept."""
        ...

    @property
    def silence(self) -> StorageError | None:
        """Why this start is not kept yet, so that nobody may hear of it; None: it is."""
        ...

    def keep(self, *, store: int, life: int) -> None:
        """Have the record say these of the store, durably; it blocks.  Raises `StorageError`."""
        ...


class OwnTree(Protocol):
    """The tree, as far as this needs it."""

    def publish(self, path: str, value: bytes = b"") -> None:
        """Show a key; raises `TooLarge`."""
        ...

    def withdraw(self, path: str) -> bool:
        """Take a key back."""
        ...

    def below(self, path: str) -> list[TreeEntry]:
        """List what anybody shows below a path."""
        ...

    def watch(self, path: str, wake: Callable[[], None]) -> TreeWatch:
        """Have `wake` called when something changes below a path."""
        ...


class ClusterView(OwnTree, Protocol):
    """The members that gossip knows, and the tree that they share."""

    def members_known(self) -> Sequence[Member]:
        """All of them, this node among them."""
        ...

    def spoken(self) -> Mapping[str, int]:
        """By member that lives: the newest revision of messages that it reads, 1 where it has not said."""
        ...

    async def pin(self) -> bytes:
        """Never let this node take another cluster id, and return the one that it has.  Raises `NotReady`: none yet."""
        ...


class PeerLinks(Protocol):
    """The connections to other nodes."""

    def store(self, name: str) -> tuple[int, int] | None:
        """The id and the life of a member's store, 0 if it had none; None: there is no connection to it."""
        ...

    def watch(
        self,
        *,
        begun: Callable[[str, bytes], object] | None = None,
        ended: Callable[[str, bytes], object] | None = None,
    ) -> None:
        """Have somebody told, by name and uuid, of each connection that begins, or ends, from now on."""
        ...

    def ask_unread(self, name: str, method: str, params: list[Value], timeout_ms: int, on_answer: OnAnswer) -> None:
        """Ask a member; `on_answer` is called once, maybe at once."""
        ...
