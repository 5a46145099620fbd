r"""Dividing: a range is cut in place, and its copy here is several from then on, in one batch and without a byte moved.

The children of a range stand on their parent's nodes, each under an assignment of its own; the parent's are *former*.
When this node adopts that, one batch lets go of what the parent is, and says what each heir is: its clock is the
parent's, with an entry for each assignment that the adopted map names and no other, its time the parent's.  Records
stay where they are (`spaces`).  What follows in the log is of the heirs alone.

A copy has an *heir* in a child that names its assignment as former, and where this node's own is AVAILABLE or LEAVING.
Of the rest of its keys what it has is set aside: others went on without it.

Of a copy that was set aside people may have a range go on whose hosts are all gone (`keep`).  That has nothing former:
what was kept of each assignment is said by the map, as its end.

Confirmations of the parent are forgotten: who told them had not adopted.  What waits is counted anew.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from gossipkv.replication.replica import clock
from gossipkv.replication.replica.keys import (
    ASIDE,
    DIVIDED,
    ENDED,
    IDENTITY,
    MOVES,
    OF_COPY,
    STATE,
    KeyBounds,
    encode_state,
    suffix_of,
)
from gossipkv.replication.replica.replica import Replica
from gossipkv.replication.replica.spaces import QuarantinedReplica
from gossipkv.storage.engine.shell import Batch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gossipkv.replication.replica.keys import ReplicaIdentity
    from gossipkv.replication.replica.replica import AssignedReplica, PartitionRules
    from gossipkv.replication.replica_set import ReplicaSet

    Append = Callable[[Batch, Callable[[], object]], int]  # Returns its position.  Raises Overloaded, StorageError.


class ChildReplica(NamedTuple):
    """A child of a range that this node goes on with."""

    identity: ReplicaIdentity
    config: int
    hosts: Sequence[AssignedReplica]
    rules: PartitionRules

    @property
    def named(self) -> tuple[int, ...]:
        """The assignments of its clock, in order."""
        return tuple(sorted((*(host.assignment for host in self.hosts), *self.rules.former)))


def divide(
    replicas: ReplicaSet,
    append: Append,
    parent: Replica,
    heirs: Sequence[ChildReplica],
    orphans: Mapping[ReplicaIdentity, str],
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
    batch.relieves = True  # Until it goes on as its children, none of them can move away or be dropped.
    for key in OF_COPY:
        parent.remove(batch, key)
    parent.put(batch, DIVIDED, parent.identity.encode())
    copies = [_put(batch, parent, heir) for heir in heirs]
    aside = [QuarantinedReplica(parent.space, suffix_of(one.partition), one, why) for one, why in orphans.items()]
    _put_aside(batch, parent, aside)
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


def _put(batch: Batch, parent: Replica, heir: ChildReplica) -> Replica:
    suffix, begins = suffix_of(heir.identity.partition), clock.named(parent.appended, heir.named)
    state = encode_state(parent.time.last, heir.config, begins, begins)
    copy = Replica(parent.space, heir.identity, state, parent.made_at, suffix=suffix)
    copy.put(batch, IDENTITY, heir.identity.encode())
    copy.put(batch, STATE, state)
    if ended := heir.rules.ended(heir.named):
        copy.put(batch, ENDED, ended)
    if not any(host.counts for host in heir.hosts if host.assignment == copy.assignment):  # It is LEAVING.
        copy.put(batch, MOVES, b"")
    return copy


def _put_aside(batch: Batch, whole: Replica, parts: Sequence[QuarantinedReplica]) -> None:
    """Have parts of a copy set aside, with what it had: people may have a range go on with one."""
    state = encode_state(whole.time.last, whole.config, whole.appended, whole.appended)
    ended = ((ENDED, whole.ended),) if whole.ended else ()
    for part in parts:
        for key, value in ((IDENTITY, part.identity.encode()), (STATE, state), *ended, (ASIDE, part.why.encode())):
            batch.put(part.space, key + part.suffix, value)


def _adopted(replicas: ReplicaSet, copies: Sequence[Replica], heirs: Sequence[ChildReplica]) -> None:
    for copy, heir in zip(copies, heirs, strict=True):
        replicas.has_adopted(copy, heir.config)


def keep(replicas: ReplicaSet, append: Append, one: QuarantinedReplica, was: Replica, heir: ChildReplica) -> None:
    """Have a range go on with what was set aside, of which the rest stays so; `was`: that, as it had been.

    Raises:
        Overloaded, StorageError: nothing was done.
    """
    bounds, identity = heir.identity.bounds, one.identity
    assert identity.bounds.covers(bounds), (identity, bounds)
    batch = Batch()
    for key in (*OF_COPY, ASIDE):
        batch.delete(one.space, key + one.suffix)
    was.made_at = replicas.tail.end  # Of what the log has of it nothing is anybody's any more.
    copy = _put(batch, was, heir)
    copy.synced_config = was.config
    rest = [KeyBounds(identity.bounds.first, bounds.first)] if identity.bounds.first < bounds.first else []
    if bounds.end is not None and bounds.end != identity.bounds.end:
        rest.append(KeyBounds(bounds.end, identity.bounds.end))
    numbers = (heir.identity.partition ^ number for number in (1, 2))  # As random as that, and nobody's.
    aside = [
        one._replace(suffix=suffix_of(number), identity=identity._replace(bounds=each))
        for number, each in zip(numbers, rest, strict=False)
    ]
    _put_aside(batch, was, aside)
    append(batch, partial(_adopted, replicas, [copy], [heir]))
    copy.adopts(heir.config, heir.hosts, heir.rules)
    replicas.spaces.keep(one, aside)
    replicas.found(copy)
    replicas.upkeep.placed(copy)
    replicas.upkeep.moved(copy)
