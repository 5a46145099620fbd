"""What did not fit, so that it is not asked for again and again, and when it is to be asked for after all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from gossipkv.gossip.packets.messages import Head

MOST_TRIES: Final = 32  # While its head is a rumour it comes in datagrams; over TCP only when that is over.


@final
class RefusedBranches:
    """The newest state of each owner that was refused, and how much room it lacked."""

    __slots__ = ("_heads", "_needs", "_tries")

    def __init__(self) -> None:
        self._heads: dict[bytes, Head] = {}
        self._needs: dict[bytes, int] = {}  # Of a transfer in parts: up to the part that did not fit.
        self._tries: dict[bytes, tuple[Head, int]] = {}  # What came in small parts, and how often.

    def try_again(self, head: Head) -> bool:
        """Whether what came in small parts, for which there was no room, may come once more in larger ones."""
        tried, times = self._tries.get(head.owner, (head, 0))
        times = times + 1 if tried == head else 1
        self._tries[head.owner] = head, times
        return times < MOST_TRIES

    def add(self, head: Head, need_bytes: int | None) -> None:
        """This does not fit, for so much room that must be free, or whatever is free."""
        owner = head.owner
        known = self._heads.get(owner)
        if known is not None and head < known:
            return
        self._heads[owner] = head
        self._needs.pop(owner, None)
        if need_bytes is not None:
            self._needs[owner] = need_bytes
        assert len(self._needs) <= len(self._heads), owner

    def head(self, owner: bytes) -> Head | None:
        """What of this owner's did not fit."""
        return self._heads.get(owner)

    def forget(self, owner: bytes) -> bool:
        """Let it be asked for again; false: nothing was refused."""
        self._needs.pop(owner, None)
        self._tries.pop(owner, None)
        return self._heads.pop(owner, None) is not None

    def all(self) -> list[bytes]:
        """Whose branches did not fit."""
        return list(self._heads)

    def lacking_room(self) -> dict[bytes, int]:
        """Whose branches only lacked room, and how much room they need."""
        return dict(self._needs)
