"""Which datasets of a cluster cannot be read yet: each node is asked for a key of each, as a reader would."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from gossipkv.client import blocking
from gossipkv.errors import GossipKVError, NotReady, TimedOut

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gossipkv.launcher.status import NodeStatus

ANSWER_MS: Final = 500  # A node is asked again: one that is busy holds up the others no longer than this.
READ_MS: Final = 90  # So little that the client does not wait for what is coming: there is more to ask for.
ANY_KEY: Final = b"any"


class Unread(NamedTuple):
    """A dataset that a node does not answer for, or the source as a whole."""

    database: str
    node: str
    why: str
    is_coming: bool  # It is being built, or about to be, and nothing is known that stands in its way.


def unread(nodes: Iterable[NodeStatus]) -> Iterator[Unread]:
    """What cannot be read at these nodes, in their order; of one that does not answer, whatever it may have."""
    for node in nodes:
        try:
            with blocking.connect(node.address, timeout_ms=ANSWER_MS) as client:
                if (why := client.info().get("source_error")) is not None:
                    yield Unread("the source", node.name, str(why), is_coming=False)
                for told in client.databases():
                    if told.get("kind", "dataset") == "dataset":
                        yield from _unread(client, str(told["name"]), node)
        except GossipKVError as error:
            yield Unread("any dataset", node.name, error.message, isinstance(error, TimedOut))


def _unread(client: blocking.Client, database: str, node: NodeStatus) -> Iterator[Unread]:
    try:
        client.call("get", database, ANY_KEY, timeout_ms=READ_MS)
    except (NotReady, TimedOut) as error:
        is_coming = isinstance(error, TimedOut) or error.details.get("coming") is True
        yield Unread(database, node.name, error.message, is_coming)
