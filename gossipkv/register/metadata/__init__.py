"""Metadata: the maps of tables and the catalogue in registers, and the transactions on them.

Read in this order:

    packing.py       values in their only encoding
    known.py         known maps: config ids, entries, and the views that readers use
    operations.py    operations, judged and applied in turn
    partitions.py    a table's map: records of partitions (`placement/partition.py`), operations
    tables.py        the catalogue: records, operations
    deadline.py      one deadline for all steps of a request
    transactions.py  from operations to edits that a majority has accepted
    server.py        one node's part in all maps
    nodes.py         the nodes that hold tables
    first_maps.py    the first map of a register
    catalogue.py     founding and growth of the catalogue, creation and dropping of tables
"""
