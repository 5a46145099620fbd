"""Mutable databases: the store under them, this node's part in deciding on them, and the methods about them.

Read in this order:

    tables.py       the store: whether it may be opened, and that it is; stores.py: what is needed of a store
    asking.py       the ways to other nodes
    deciding.py     this node's part in deciding: from when, and with whom; hints.py: what nodes tell of it in the tree
    host.py         the node around them, as far as they know it, and whether it may found the catalogue
    methods.py      the methods about tables, loaded when one is called
    for_clients.py  the door for clients; requests.py: what they sent, judged
    placing.py      the door for people who change which nodes tables are laid on
    for_peers.py    the door for other nodes; words.py: who is believed there
    moving.py       which moves are begun; of range tables planning.py, by what measuring.py says
    splitting.py    ranges that are too large are divided; works.py: all that a node does by itself
    holding.py      maps become copies of partitions
    records.py      the methods on records: writes.py, reads.py of single ones, scans.py page by page
    routing.py      the partition of a key, and who holds it; forwarding.py: how a request comes to one of them
"""
