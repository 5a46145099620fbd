"""Tables: mutable databases, from the store of their records to the methods that clients call.

Read in this order:

    ports.py      what is around the tables, as Protocols: the node, its members, its links, the store underneath
    store.py      the store of this node: it is opened here, or stays closed for a reason
    peers/        requests to other nodes, and hints in gossip about newer maps
    controllers/  loops that move the state of this node towards the state that the maps want
    calm.py       calm replicas, which the serving loops read without Python
    service.py    the maps, replicas and controllers of the open store
    participant/  the part of this node in METADATA transactions
    session/      session tokens, and replicas that are ready for them
    records/      reads, writes and scans of records
    rpc/          dispatch of requests about tables, and methods for administrators and other nodes
"""
