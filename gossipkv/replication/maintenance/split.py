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

from gossipkv.replication._replication import encode_state
from gossipkv.replication.replica import clock
from gossipkv.replication.replica.keys import (
    DIVIDED,
    ENDED,
    IDENTITY,
    MOVES,
    OWN_ROWS,
    QUARANTINED,
    STATE,
    KeyBounds,
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
    children: Sequence[ChildReplica],
    orphans: Mapping[ReplicaIdentity, str],
) -> None:
    """Replace a replica by children; `orphans`: parts without a child here, with reasons.

    The parts carry the parent's assignment.

    Raises:
        NotReady: the replica is about to change its space; retry later.
        Overloaded, StorageError: nothing was done.
    """
    assert children
    assert parent.joining is None, "an incomplete replica was not AVAILABLE when its range was divided"
    assert all(parent.assignment in child.rules.former for child in children), parent.identity
    replicas.loader.abort(parent)
    batch = Batch()
    batch.relieves = True  # The children cannot move away or be dropped before the split.
    for key in OWN_ROWS:
        parent.remove(batch, key)
    parent.put(batch, DIVIDED, parent.identity.encode())
    new_replicas = [_put(batch, parent, child) for child in children]
    parts = [QuarantinedReplica(parent.space, suffix_of(part.partition), part, why) for part, why in orphans.items()]
    _put_quarantined(batch, parent, parts)
    levels = replicas.acks[parent]
    position = append(batch, partial(_adopted, replicas, new_replicas, children))
    for replica, child in zip(new_replicas, children, strict=True):
        replica.adopts(child.config, child.hosts, child.rules)
        replica.inherits(parent)
        replicas.beginnings.note(replica, (), child.hosts, position)
        replicas.beginnings.inherit(replica, parent)
    replicas.take_over(parent, new_replicas)
    replicas.spaces.divide(parent, position, new_replicas, parts)
    if not orphans:  # Otherwise waiting writes may have keys that no child confirms.
        levels.divided([replicas.acks[replica] for replica in new_replicas])


def _put(batch: Batch, parent: Replica, child: ChildReplica) -> Replica:
    suffix, begins = suffix_of(child.identity.partition), clock.named(parent.appended, child.named)
    state = encode_state(parent.time, child.config, begins, begins)
    replica = Replica(parent.space, child.identity, state, parent.made_at, suffix=suffix)
    replica.put(batch, IDENTITY, child.identity.encode())
    replica.put(batch, STATE, state)
    if ended := child.rules.ended(child.named):
        replica.put(batch, ENDED, ended)
    own = next((host for host in child.hosts if host.assignment == replica.assignment), None)
    if own is None or not own.counts:  # The assignment is LEAVING.
        replica.put(batch, MOVES, b"")
    return replica


def _put_quarantined(batch: Batch, whole: Replica, parts: Sequence[QuarantinedReplica]) -> None:
    """Quarantine parts of a replica with its state: operators may revive a range from a part."""
    state = encode_state(whole.time, whole.config, whole.appended, whole.appended)
    for part in parts:
        rows = {IDENTITY: part.identity.encode(), STATE: state, QUARANTINED: part.why.encode()}
        rows |= {ENDED: whole.ended} if whole.ended else {}
        for key, value in rows.items():
            batch.put(part.space, key + part.suffix, value)


def _adopted(replicas: ReplicaSet, new_replicas: Sequence[Replica], children: Sequence[ChildReplica]) -> None:
    for replica, child in zip(new_replicas, children, strict=True):
        replicas.has_adopted(replica, child.config)


def keep(replicas: ReplicaSet, append: Append, part: QuarantinedReplica, was: Replica, child: ChildReplica) -> None:
    """Revive a range from a quarantined part; `was`: the part as a replica; its rest stays quarantined.

    Raises:
        Overloaded, StorageError: nothing was done.
    """
    bounds, identity = child.identity.bounds, part.identity
    assert identity.bounds.covers(bounds), (identity, bounds)
    batch = Batch()
    for key in (*OWN_ROWS, QUARANTINED):
        batch.delete(part.space, key + part.suffix)
    was.made_at = replicas.tail.end  # No reader needs the old log entries any more.
    replica = _put(batch, was, child)
    replica.synced_config = was.config
    rest = [KeyBounds(identity.bounds.first, bounds.first)] if identity.bounds.first < bounds.first else []
    if bounds.end is not None and bounds.end != identity.bounds.end:
        rest.append(KeyBounds(bounds.end, identity.bounds.end))
    # Unused suffixes, as random as the partition's id.
    numbers = (child.identity.partition ^ number for number in (1, 2))
    left = [
        part._replace(suffix=suffix_of(number), identity=identity._replace(bounds=remaining))
        for number, remaining in zip(numbers, rest, strict=False)
    ]
    _put_quarantined(batch, was, left)
    append(batch, partial(_adopted, replicas, [replica], [child]))
    replica.adopts(child.config, child.hosts, child.rules)
    replicas.spaces.keep(part, left)
    replicas.found(replica)
    replicas.dirty.placed(replica)
