r"""Dividing: a range is cut in place, and its copy here is several from then on, in one batch and without a byte moved.

The children of a range stand on their parent's nodes, each under an assignment of its own; the parent's are *former*.
When this node adopts that, one batch lets go of what the parent is, and says what each heir is: its clock is the
parent's, with an entry for each assignment that the adopted map names and no other, its time the parent's.  Records
stay where they are (`spaces`).  What follows in the log is of the heirs alone.

A copy has an *heir* in a child that names its assignment as former, and where this node's own is AVAILABLE or LEAVING.
Of the rest of its keys what it has is set aside: others went on without it.

Confirmations of the parent are forgotten: who told them had not adopted.  What waits is counted anew.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from gossipkv.replication import clock
from gossipkv.replication.copy import Copy
from gossipkv.replication.keys import ASIDE, DIVIDED, IDENTITY, MOVES, STATE, encode_state, suffix_of
from gossipkv.replication.spaces import Aside
from gossipkv.storage.engine.shell import Batch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gossipkv.replication.copy import Host, Rules
    from gossipkv.replication.keys import Identity
    from gossipkv.replication.replicas import Replicas


class Append(Protocol):
    """A function that appends a batch, and returns its position.  Raises Overloaded, StorageError."""

    def __call__(self, batch: Batch, on_synced: Callable[[], object], /) -> int: ...


class Heir(NamedTuple):
    """A child of a range that this node goes on with."""

    identity: Identity
    config: int
    hosts: Sequence[Host]
    rules: Rules

    @property
    def named(self) -> tuple[int, ...]:
        """The assignments of its clock, in order."""
        return tuple(sorted((*(host.assignment for host in self.hosts), *self.rules.former)))


def divide(
    replicas: Replicas, append: Append, parent: Copy, heirs: Sequence[Heir], orphans: Mapping[Identity, str]
) -> None:
    """Have heirs in the place of a copy; `orphans`: the parts that have none, under the parent's assignment, and why.

    Raises:
        NotReady: it is about to be in another space; later.
        Overloaded, StorageError: nothing was done.
    """
    assert heirs
    assert parent.joining is None, "who is not whole was not AVAILABLE when its range was divided"
    assert all(parent.assignment in heir.rules.former for heir in heirs), parent.identity
    replicas.loading.tear(parent)
    batch = Batch()
    for key in (IDENTITY, STATE, MOVES):
        parent.remove(batch, key)
    parent.put(batch, DIVIDED, parent.identity.encode())
    copies = [_put(batch, parent, heir) for heir in heirs]
    aside = [Aside(parent.space, suffix_of(one.partition), one, why) for one, why in orphans.items()]
    for part in aside:
        batch.put(parent.space, IDENTITY + part.suffix, part.identity.encode())
        batch.put(parent.space, ASIDE + part.suffix, part.why.encode())
    levels = replicas.levels[parent]
    position = append(batch, partial(_adopted, replicas, copies, heirs))
    for copy, heir in zip(copies, heirs, strict=True):
        copy.adopts(heir.config, heir.hosts, heir.rules)
        copy.inherits(parent)
        replicas.beginnings.note(copy, (), heir.hosts, position)
    replicas.take_over(parent, copies)
    replicas.spaces.divide(parent, position, copies, aside)
    if not orphans:  # Else what waits has keys, perhaps, that nobody confirms.
        levels.divided([replicas.levels[copy] for copy in copies])


def _put(batch: Batch, parent: Copy, heir: Heir) -> Copy:
    suffix, begins = suffix_of(heir.identity.partition), clock.named(parent.appended, heir.named)
    state = encode_state(parent.time.last, heir.config, begins, begins)
    copy = Copy(parent.space, heir.identity, state, parent.made_at, suffix=suffix)
    copy.put(batch, IDENTITY, heir.identity.encode())
    copy.put(batch, STATE, state)
    if not any(host.counts for host in heir.hosts if host.assignment == copy.assignment):  # It is LEAVING.
        copy.put(batch, MOVES, b"")
    return copy


def _adopted(replicas: Replicas, copies: Sequence[Copy], heirs: Sequence[Heir]) -> None:
    for copy, heir in zip(copies, heirs, strict=True):
        replicas.has_adopted(copy, heir.config)
