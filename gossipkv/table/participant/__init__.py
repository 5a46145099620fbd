"""The part of this node in METADATA transactions.

Read in this order:

    node_directory.py  the nodes of the cluster, by uuid and by name
    map_watcher.py     reads the catalogue at first, and maps of which a newer one was seen
    register_poll.py   reads all registers at intervals, which covers what polls have missed
    participant.py     takes part once there is a catalogue, and founds it
"""
