"""Maps on immutable pages, and what is decided about them: tables' METADATA and the catalogue.

Read in this order:

    pages.py        the bytes of a page, its name, limits
    tree.py         an ordered map on pages: reading, editing, checking what somebody else made
    operations.py   operations, judged and applied in turn
    partitions.py   a table's map: records of partitions (`placement/partition.py`), operations
    tables.py       the catalogue: records, operations
    ledger.py       what one server has of a map, in its store: pages, pins, collection; how it gets what it lacks
    head.py         what the register has: the root of now, and the last ones
    transactions.py from operations to a head that a majority holds
    server.py       one node's part in all maps
    nodes.py        the nodes that tables are laid on
    catalogue.py    how the catalogue is founded and grows, and tables are made and dropped
    discovery.py    what a node is to do with each partition
"""
