"""Change feeds: the changes of partitions in the order of one replica's log, for readers outside of replication.

Read in this order:

    places.py   the place of a feed in a partition: a clock, which any replica can continue from
    marks.py    finds the position in the local log from which a replica continues a place
    pages.py    one poll of a feed at a host: changes after the places, or a wait for them
"""
