"""The node that hosts the tables, as far as they know it: its record, the members around it, and the ways to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from gossipkv.table.hints import OwnTree

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gossipkv.errors import StorageError
    from gossipkv.gossip.member import Member
    from gossipkv.wire.results import OnAnswer
    from gossipkv.wire.rpc import Value


class Record(Protocol):
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


class Identity(Protocol):
    """The record, and who keeps it."""

    @property
    def record(self) -> Record:
        """As it is kept."""
        ...

    @property
    def silence(self) -> StorageError | None:
        """Why this start is not kept yet, so that nobody may hear of it; None: it is."""
        ...

    def keep(self, *, store: int, life: int) -> None:
        """Have the record say these of the store, durably; it blocks.  Raises `StorageError`."""
        ...


class Cluster(OwnTree, Protocol):
    """The members that gossip knows, and the tree that they share."""

    def members_known(self) -> Sequence[Member]:
        """All of them, this node among them."""
        ...

    def speaks(self) -> int:
        """The newest forms of messages that all members that live read; 1: one of them has not said."""
        ...

    async def pin(self) -> bytes:
        """Never let this node take another cluster id, and return the one that it has.  Raises `NotReady`: none yet."""
        ...


class Peers(Protocol):
    """The connections to other nodes."""

    def store(self, name: str) -> tuple[int, int] | None:
        """The id and the life of a member's store, 0 if it had none; None: there is no connection to it."""
        ...

    def speaks(self, name: str) -> int:
        """The newest forms of messages that a member reads; 0: there is no connection to it."""
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


class DecidingSettings(Protocol):
    """The settings that this needs."""

    @property
    def metadata_copies(self) -> int:
        """Acceptors of the catalogue, at most."""
        ...

    @property
    def max_branch(self) -> int:
        """Bytes that this node may publish in the tree."""
        ...

    @property
    def relay_after(self) -> int:
        """Milliseconds after which a record of another origin is passed on."""
        ...

    @property
    def max_clock_skew(self) -> int:
        """Milliseconds that a clock may be off most others."""
        ...

    @property
    def move_stall(self) -> int:
        """Milliseconds that a load waits for its source."""
        ...

    @property
    def max_moves(self) -> int:
        """Partitions that move at a time at each node."""
        ...

    @property
    def table_transfer(self) -> int:
        """Bytes a second that loads may take in."""
        ...

    @property
    def split_bytes(self) -> int:
        """Bytes at which a range is divided; 0: at none."""
        ...

    @property
    def split_rows(self) -> int:
        """Records at which a range is divided; 0: at none."""
        ...

    @property
    def planner(self) -> str:
        """Whether range tables are planned: on, off."""
        ...

    @property
    def smear(self) -> str:
        """`on`: this node keeps puts of time series for a while; or `off`."""
        ...

    @property
    def isolation_group(self) -> str:
        """What fails together with this node."""
        ...

    @property
    def weight(self) -> int:
        """Its share of partitions."""
        ...

    @property
    def max_queued_total(self) -> int:
        """Bytes of requests that wait."""
        ...
