"""Who may found the catalogue of a cluster's tables: the node that drew the cluster's id, and nobody else.

An id is drawn once, by one node, so two sides of a cut cannot each found a catalogue; and a node founds nothing before
there are tables, so two lone nodes with datasets can still become one cluster.  NODE keeps which id was drawn (`drew`)
in the same write as the id itself, which is told to nobody before, and the store of tables under which (`drew_store`):

    the id is drawn                            drew = the id; drew_store = the store, 0 if there is none yet
    the first store is made, or one in its     drew_store = that store, in the write that names it
    first life is found after a crash
    the id of another cluster is taken         both stay, and count again if the node comes back to the id that it drew
    a backup of tables is put back             both are erased, before the store enters its place: the backup may have a
                                               catalogue
    tables are forgotten                       both are erased: it is another node
    the node gets another name                 both are erased: it may be a copy of the one that drew; of two under one
                                               name gossip tells (`gossip.membership.namesakes`)
    NODE is lost, or is of before this rule    both are unknown, and count as erased

Coming back is no rarity: of six nodes that start within seconds, told of each other in all ways, the one that drew the
id on which they end had another meanwhile in 1 run of 75, and in 1 of 5 where a write takes half a second.

So the right dies with the store that it belongs to, and nothing brings it back: when it is gone before anything was
founded, `gossipkv metadata force` founds anew.  An older copy of NODE beside the store, or of the store beside NODE, is
known for what it is (`tables`), or finds the catalogue in the store.  An older copy of NODE, of before the founding,
whose store is of its age too, or gone, is not: whoever is to found looks first whether another member knows of a
catalogue.

Who founds is pinned first (`Gossiping.pin`), then has its store (`Tables.create`), and asks here last, since a node
that is not pinned may take another id at any moment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gossipkv.table.host import Record


def may_not_found(record: Record, cluster_id: str) -> str | None:
    """Why this node may not found the catalogue of a cluster, given in 16 hexadecimal digits; None: it may."""
    assert cluster_id, record
    if record.cluster_id != cluster_id:
        own = f"the cluster {record.cluster_id}" if record.cluster_id else "no cluster yet"
        return f"this node is of {own}, not of the cluster {cluster_id}"
    if record.drew != cluster_id:
        return (
            f"this node did not draw the id {cluster_id} of its cluster, or has lost the note that it did: the one "
            "that drew it founds the catalogue; if that one is gone, `gossipkv metadata force` founds it anew"
        )
    if record.drew_store != record.store:
        return (
            f"this node drew the id {cluster_id} of its cluster with the store {record.drew_store:016x}, and has "
            f"{record.store:016x} now, which may have a catalogue; `gossipkv metadata force` founds it anew"
        )
    return None
