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
