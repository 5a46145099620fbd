"""The keys that this node publishes in the tree, and the refusals of the tree.

The publisher keeps a refused value and tries again when its value changes. Until then the refusal is logged once, and
`status` shows it for as long as a key is missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from gossipkv.errors import TooLarge
from gossipkv.log import Log

if TYPE_CHECKING:
    from gossipkv.gossip.tree.tree import GossipTree


@final
class Publications:
    """The keys of this node, with the reason for each that the tree refused."""

    def __init__(self, tree: GossipTree) -> None:
        self._tree = tree
        # Reasons by path, in the order of refusal; bounded by the number of keys that this node publishes.
        self._refused: dict[str, str] = {}
        self._log = Log("gossipkv.node")

    @property
    def error(self) -> str | None:
        """The number of keys that are not published, and the reason for the last one; None if all are published."""
        if not self._refused:
            return None
        path, why = next(reversed(self._refused.items()))
        return f"the tree refused {len(self._refused)} of this node's entries, such as {path}: {why}"

    def publish(self, path: str, value: bytes = b"") -> None:
        """Publish a key under this node's name.

        Raises:
            BadRequest: the path is not valid.
            TooLarge: the value is over a limit of this node; the value published before stays.
        """
        try:
            self._tree.publish(path, value)
        except TooLarge as error:
            if not self._refused:
                self._log.warning("not_published", path=path, error=str(error))
            self._refused.pop(path, None)
            self._refused[path] = str(error)
            raise
        self._refused.pop(path, None)

    def withdraw(self, path: str) -> bool:
        """Withdraw a key, or give up on a refused one; return False if it was not published."""
        self._refused.pop(path, None)
        return self._tree.withdraw(path)
