"""Change feeds: the changes of partitions in the order of one replica's log, for readers outside of replication.

    places    the place of a feed in a partition: a clock, which any replica can continue from
    marks     finds the position in the local log from which a replica continues a place
    pages     one poll of a feed at a host: changes after the places, or a wait for them

`docs/development/replication.md` has the rules. Begin with `pages`.
"""
