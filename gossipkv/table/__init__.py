"""Tables: mutable databases, from the store of their records to the methods that clients call.

Read in this order:

    ports.py      the node around the tables, as Protocols: its record, its members, its links to other nodes
    stores.py     the store under the tables, as Protocols, and its loading
    store.py      the store of this node: it is opened here, or stays closed for a reason
    peers/        requests to other nodes, and hints in gossip about newer maps
    controllers/  loops that move the state of this node towards the state that the maps want
    participant/  the part of this node in METADATA transactions
    session/      session tokens, and replicas that are ready for them
    records/      reads, writes and scans of records
    rpc/          dispatch of requests about tables, and methods for administrators and other nodes
"""
