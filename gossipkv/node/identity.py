"""The identity of the node in a data directory, across its starts: the documents NODE, PEERS and BACKUPS.

NODE must neither be lost nor go back. It has the uuid, the name, the *epoch*, which each start raises before the node
speaks, the cluster id and whether this node drew it, the shard id, and the id and *life* of the store of tables, by
which an older copy of the store is recognised. Only the node that drew the id may found the catalogue
(`table.ports.may_not_found`). NODE is overwritten in place (`storage.slots`), so that a node starts on a full disk.

If NODE is lost with its directory, a new node begins. Its first epoch is the wall clock in milliseconds, so a node that
returns under its old name without data is newer than its past, unless the clock went back. PEERS only helps a start
without `join`: it has the last addresses of members. BACKUPS has the times of backups that this node made, for metrics.

Everything here blocks, and is called from worker threads, one at a time.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, NamedTuple

from gossipkv.address import Address, parse_address
from gossipkv.errors import Corrupt, GossipKVError, UnsupportedFormat
from gossipkv.storage.document import flag, read_document, text, whole, write_document
from gossipkv.storage.slots import read_slots, write_slots

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping, Sequence
    from pathlib import PurePath

    from gossipkv.environment.seam import Files
    from gossipkv.storage.document import Body

NODE, PEERS, BACKUPS = "NODE", "PEERS", "BACKUPS"

MAX_PEERS = 256  # So many that some still live after a long stop.

MAX_STORE = (1 << 64) - 1

_DIGITS = frozenset("0123456789abcdef")


class NodeRecord(NamedTuple):
    """The fields of NODE."""

    cluster: str
    uuid: str  # 32 hexadecimal digits, for life.
    node: str  # The name of the node.
    epoch: int = 0
    cluster_id: str = ""  # 16 hexadecimal digits; empty until the node is of a cluster.
    pinned: bool = False  # The cluster id never changes again: the node holds data of that cluster.
    shard_id: int = 0  # 0: none yet.
    store: int = 0  # The id of the store of its tables; 0: none.
    life: int = 0  # The store's current life or the one before: the store takes its next life first.
    drew: str = ""  # The cluster id that this node drew; empty: it drew none, or may not found anything any more.
    drew_store: int = 0  # The store with which the node drew it; 0: it had none yet.


def read_node(files: Files, path: PurePath) -> NodeRecord | None:
    """Return the document NODE of the directory `path`; None if there is none.

    Raises:
        Corrupt, UnsupportedFormat: the document is damaged, or too new.
    """
    place = path / NODE
    name = str(place)
    try:
        body = read_slots(files, place, NODE)
    except FileNotFoundError:
        return None
    record = NodeRecord(
        text(body, "cluster", name),
        text(body, "uuid", name),
        text(body, "node", name),
        epoch=whole(body, "epoch", name),
        cluster_id=text(body, "cluster_id", name),
        pinned=flag(body, "pinned", name),
        shard_id=whole(body, "shard_id", name),
        store=whole(body, "store", name),
        life=whole(body, "life", name),
        drew=text(body, "drew", name),
        drew_store=whole(body, "drew_store", name),
    )
    for store in (record.store, record.drew_store):
        if store > MAX_STORE:
            raise Corrupt(name, 0, "the id of a store must be a number of 64 bits", got=store)
    for cluster_id in (record.cluster_id, record.drew):
        if len(cluster_id) not in {0, 16} or not _DIGITS.issuperset(cluster_id):
            raise Corrupt(name, 0, "the cluster id must be 16 hexadecimal digits", got=cluster_id[:80])
    return record


def write_node(files: Files, path: PurePath, record: NodeRecord) -> None:
    """Write NODE; durable on return. Raises OSError."""
    write_slots(files, path / NODE, NODE, dict(record._asdict()))


def next_life(
    files: Files,
    path: PurePath,
    *,
    cluster: str,
    node: str | None,
    random: random.Random,
    least_epoch: int,
    uuid: str | None = None,
) -> tuple[NodeRecord, bool]:
    """Return the record of this directory's node in a new epoch, and True if the node is new.

    The caller writes the record before the node speaks. `node` renames the node. None keeps its name; a new node is
    named after its uuid, which is `uuid` or drawn. The epoch is one above the last, but at least `least_epoch` (the
    wall clock). So no epoch is used twice, even if an older copy of the directory is put back.

    Raises:
        UnsupportedFormat: the directory is of another cluster, or its document of a newer format.
        Corrupt: the document is damaged.
        OSError: the system refused.
    """
    record = read_node(files, path)
    is_new = record is None
    if record is None:
        uuid = uuid or _new_uuid(random)
        record = NodeRecord(cluster, uuid, f"node-{uuid[:8]}", epoch=0)
    elif record.cluster != cluster:
        raise UnsupportedFormat(
            f"{path}: the directory belongs to the cluster {record.cluster!r}, and this node has cluster = "
            f"{cluster!r}; set the same cluster, or another directory with --data",
            {"file": str(path / NODE), "expected": record.cluster, "got": cluster},
        )
    if node is not None and node != record.node:
        record = without_founding(record._replace(node=node))  # The directory may be a copy of another node's.
    return record._replace(epoch=max(record.epoch + 1, least_epoch)), is_new


def new_node(record: NodeRecord, random: random.Random, uuid: str | None = None) -> NodeRecord:
    """Return the record of a new node in place of this one: same name, cluster and shard, unpinned, without a store."""
    return without_founding(record._replace(uuid=uuid or _new_uuid(random), pinned=False, store=0, life=0))


def with_founding(record: NodeRecord) -> NodeRecord:
    """Return the record of a node that has drawn the cluster id in `record`."""
    assert record.cluster_id, record
    return record._replace(drew=record.cluster_id, drew_store=record.store)


def without_founding(record: NodeRecord) -> NodeRecord:
    """Return the record of a node that may found nothing from now on."""
    return record._replace(drew="", drew_store=0)


def keep_founding(before: NodeRecord, record: NodeRecord) -> NodeRecord:
    """Return the successor of `before`; if this node drew the cluster id, its first store gets the right to found."""
    if record.drew and not (before.store or before.drew_store):
        return record._replace(drew_store=record.store)
    return record


def _new_uuid(random: random.Random) -> str:
    return f"{random.getrandbits(128):032x}"


def read_peers(files: Files, path: PurePath) -> list[Address]:
    """Return the last addresses of members; empty if they cannot be read."""
    with contextlib.suppress(OSError, GossipKVError, ValueError):
        found = read_document(files, path / PEERS, PEERS).get("peers")
        if isinstance(found, list):
            return [parse_address(str(address)) for address in found[:MAX_PEERS]]
    return []


def write_peers(files: Files, path: PurePath, peers: Sequence[Address]) -> None:
    """Keep addresses of members for the next start. Raises OSError."""
    body: Body = {"peers": [str(address) for address in peers[:MAX_PEERS]]}
    write_document(files, path / PEERS, PEERS, body)


def read_backups(files: Files, path: PurePath) -> dict[str, int]:
    """Return when the last backup of each table began, as kept by `write_backups`; empty if it is damaged or missing.

    Raises OSError.
    """
    with contextlib.suppress(FileNotFoundError, GossipKVError):
        return {
            name: began_ms
            for name, began_ms in read_document(files, path / BACKUPS, BACKUPS).items()
            if isinstance(began_ms, int)
        }
    return {}


def write_backups(files: Files, path: PurePath, began_ms: Mapping[str, int]) -> None:
    """Keep when the last complete backup of each table began, in milliseconds since 1970. Raises OSError."""
    write_document(files, path / BACKUPS, BACKUPS, {**began_ms})
