"""Metadata: maps on immutable pages, and the transactions on them: tables' maps and the catalogue.

Read in this order:

    pages.py         the bytes of a page, its name, limits
    tree.py          an ordered map on pages: reading, editing, checking changes of other nodes
    operations.py    operations, judged and applied in turn
    partitions.py    a table's map: records of partitions (`placement/partition.py`), operations
    tables.py        the catalogue: records, operations
    ledger.py        one server's pages of a map in its store: pins, garbage collection, fetching
    head.py          the payload of a map's register: the present root and the last ones
    known.py         known heads: the one notion that transactions build on, reads use, and other nodes are told
    deadline.py      one deadline for all steps of a request
    transactions.py  from operations to a head that a majority holds
    server.py        one node's part in all maps
    nodes.py         the nodes that hold tables
    catalogue.py     founding and growth of the catalogue, creation and dropping of tables
    discovery.py     a node's duty for each partition
"""
