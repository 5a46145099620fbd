"""Reads, writes and scans of records.

Read in this order:

    options.py           the options of a request
    route.py             the partition of a key and the nodes that hold it, by one map
    router.py            the maps of all tables, as this node knows them
    forward.py           passes a request to one replica after the other
    token_compaction.py  reads, shortens and writes the tokens of requests
    write.py             writes: one replica originates each, and answers at its level
    read.py              reads of single records
    scan.py              scans, page by page
    verify.py            compares the replicas of a partition on request
    endpoints.py         all methods about records, by name
"""
