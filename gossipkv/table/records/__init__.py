"""Reads, writes and scans of records.

Read in this order:

    router.py            the maps of all tables: the partition of a key, and its hosts
    forward.py           a request to the hosts of a partition, one host after the other
    token_compaction.py  reads, shortens and writes the tokens of requests
    token_survey.py      asks other hosts which entries of a long token are settled
    request.py           a client's request: its options, its map and its session
    origin.py            a write to one partition, at the replica that originates it
    gathered.py          writes that a serving loop has gathered, begun together
    write.py             writes of clients, divided by partition
    read.py              reads of single records
    scan.py              scans, page by page
    feed_token.py        tokens of change feeds
    changes.py           change feeds, poll by poll
    range_deletion.py    deletion of a range, page by page
    verify.py            compares the replicas of a partition on request
    endpoints.py         all methods about records, by name
"""
