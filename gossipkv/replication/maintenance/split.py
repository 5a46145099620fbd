"""Splits: a local replica of a range becomes several in one batch, without a byte moved.

The children of a range get the parent's nodes, each under its own assignment; the parent's assignments are *former*.
When this node adopts the split, one batch removes the parent's own rows and writes those of each child. A child's clock
is the parent's, with an entry for exactly the assignments of the adopted placement; its time is the parent's. Records
stay in place (`spaces`). Later log entries are the children's alone.

A node continues a child that names the parent's assignment as former and has an AVAILABLE or LEAVING assignment here.
All other parts are quarantined: other nodes continued without this node. From a quarantined part operators may revive a
range that lost all hosts (`keep`). Such a range has no former assignments; the placement states their ends.

Acknowledgements of the parent are discarded, for their senders had not adopted the split. Waiting writes are recounted.
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

    # Returns the batch's position.  Raises Overloaded, StorageError.
    Append = Callable[[Batch, Callable[[], object]], int]


class ChildReplica(NamedTuple):
    """A child of a range that this node continues."""

    identity: ReplicaIdentity
    config: int
    hosts: Sequence[AssignedReplica]
    rules: PartitionRules

    @property
    def named(self) -> tuple[int, ...]:
        """The assignments of the child's clock, in order."""
        return tuple(sorted((*(host.assignment for host in self.hosts), *self.rules.former)))


def divide(
    replicas: ReplicaSet,
    append: Append,
    parent: Replica,
    heirs: Sequence[ChildReplica],
    orphans: Mapping[ReplicaIdentity, str],
) -> None:
    """Replace a replica by children; `orphans`: parts without a child here, with reasons.

    The parts carry the parent's assignment.

    Raises:
        NotReady: the replica is about to change its space; retry later.
        Overloaded, StorageError: nothing was done.
    """
    assert heirs
    assert parent.joining is None, "who is not whole was not AVAILABLE when its range was divided"
    assert all(parent.assignment in heir.rules.former for heir in heirs), parent.identity
    replicas.loading.tear(parent)
    batch = Batch()
    batch.relieves = True  # The children cannot move away or be dropped before the split.
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
    if not orphans:  # Otherwise waiting writes may have keys that no child confirms.
        levels.divided([replicas.levels[copy] for copy in copies])


def _put(batch: Batch, parent: Replica, heir: ChildReplica) -> Replica:
    suffix, begins = suffix_of(heir.identity.partition), clock.named(parent.appended, heir.named)
    state = encode_state(parent.time.last, heir.config, begins, begins)
    copy = Replica(parent.space, heir.identity, state, parent.made_at, suffix=suffix)
    copy.put(batch, IDENTITY, heir.identity.encode())
    copy.put(batch, STATE, state)
    if ended := heir.rules.ended(heir.named):
        copy.put(batch, ENDED, ended)
    if not any(host.counts for host in heir.hosts if host.assignment == copy.assignment):  # The assignment is LEAVING.
        copy.put(batch, MOVES, b"")
    return copy


def _put_aside(batch: Batch, whole: Replica, parts: Sequence[QuarantinedReplica]) -> None:
    """Quarantine parts of a replica with its state: operators may revive a range from a part."""
    state = encode_state(whole.time.last, whole.config, whole.appended, whole.appended)
    ended = ((ENDED, whole.ended),) if whole.ended else ()
    for part in parts:
        for key, value in ((IDENTITY, part.identity.encode()), (STATE, state), *ended, (ASIDE, part.why.encode())):
            batch.put(part.space, key + part.suffix, value)


def _adopted(replicas: ReplicaSet, copies: Sequence[Replica], heirs: Sequence[ChildReplica]) -> None:
    for copy, heir in zip(copies, heirs, strict=True):
        replicas.has_adopted(copy, heir.config)


def keep(replicas: ReplicaSet, append: Append, one: QuarantinedReplica, was: Replica, heir: ChildReplica) -> None:
    """Revive a range from a quarantined part; `was`: the part as a replica; its rest stays quarantined.

    Raises:
        Overloaded, StorageError: nothing was done.
    """
    bounds, identity = heir.identity.bounds, one.identity
    assert identity.bounds.covers(bounds), (identity, bounds)
    batch = Batch()
    for key in (*OF_COPY, ASIDE):
        batch.delete(one.space, key + one.suffix)
    was.made_at = replicas.tail.end  # No reader needs the old log entries any more.
    copy = _put(batch, was, heir)
    copy.synced_config = was.config
    rest = [KeyBounds(identity.bounds.first, bounds.first)] if identity.bounds.first < bounds.first else []
    if bounds.end is not None and bounds.end != identity.bounds.end:
        rest.append(KeyBounds(bounds.end, identity.bounds.end))
    # Both are unused, and as random as the partition's id.
    numbers = (heir.identity.partition ^ number for number in (1, 2))
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
