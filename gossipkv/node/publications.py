"""What this node publishes in the tree, and what of it the tree refused.

Whoever publishes keeps what it has, and tries again when that changes; people are told meanwhile: once in the log, and
in `status` for as long as something is missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from gossipkv.errors import TooLarge
from gossipkv.log import Log

if TYPE_CHECKING:
    from gossipkv.gossip.tree.tree import GossipTree


@final
class Publications:
    """This node's keys."""

    def __init__(self, tree: GossipTree) -> None:
        self._tree = tree
        self._refused: dict[str, str] = {}  # Why, by path; as many as this node has to tell, in the order of refusal.
        self._log = Log("gossipkv.node")

    @property
    def error(self) -> str | None:
        """How many keys are not published and why the last of them is not; None: all are."""
        if not self._refused:
            return None
        path, why = next(reversed(self._refused.items()))
        return f"{len(self._refused)} not published, {path} among them: {why}"

    def publish(self, path: str, value: bytes = b"") -> None:
        """Show a key under this node's name.

        Raises:
            BadRequest: no path.
            TooLarge: over a limit of this node; what was published stays.
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
        """Take a key back, or no longer want it; false: it was not there."""
        self._refused.pop(path, None)
        return self._tree.withdraw(path)
