"""Change feeds: the changes of partitions in the order of one replica's log, for readers outside of replication.

Read in this order:

    places.py   the place of a feed in a partition: a clock, which any replica can continue from
    pages.py    a page at a host: the changes after the places, and the nodes that are told of more
"""
