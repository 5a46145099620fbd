"""A branch, or what is new of it, as DELTA parts of a size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gossipkv.gossip.packets import messages
from gossipkv.gossip.packets.messages import Delta

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gossipkv.gossip.packets.messages import Change
    from gossipkv.gossip.tree.branch import Branch

HEAD_BYTES: Final = 64  # No head of a DELTA is longer: a part's head, an id, flags, five numbers.
CHANGE_BYTES: Final = 15  # Nor is what a change has beside its path and value: a version, a kind, two lengths.


def chunks(owner: bytes, branch: Branch, since: int, most_bytes: int, *, goes_on: bool = False) -> Iterator[bytes]:
    """What is after version `since`, in parts of at most `most_bytes`; a change that alone is larger has its own.

    `goes_on`: a reset begins at `since` too, where a former answer may have ended, or there would be no end.
    """
    version, floor = branch.version, branch.floor
    if since >= version:
        return
    reset = since < floor
    if reset and not goes_on:
        since = 0
    taken: list[Change] = []
    size = HEAD_BYTES
    for change in branch.changes(since):
        more = _bytes_of(change)
        if taken and size + more > most_bytes:
            reach = taken[-1].version
            yield messages.delta(Delta(owner, branch.epoch, floor, since, reach, version, reset, tuple(taken)))
            since, taken, size = reach, [], HEAD_BYTES
        taken.append(change)
        size += more
    yield messages.delta(Delta(owner, branch.epoch, floor, since, version, version, reset, tuple(taken)))


def least_bytes(branch: Branch, since: int) -> int:
    """What goes at least over the wire, if that can be told without looking at each change."""
    return branch.wire_bytes if since < max(1, branch.floor) else 0


def _bytes_of(change: Change) -> int:
    path = change.path
    size = CHANGE_BYTES + (len(path) if path.isascii() else len(path.encode()))
    return size if change.value is None else size + len(change.value)
