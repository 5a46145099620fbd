"""The part of this node in METADATA transactions.

Read in this order:

    node_directory.py  the nodes of the cluster, by uuid and by name
    hint_watcher.py    reads newer maps that other nodes hint at, and publishes hints
    register_poll.py   reads all registers at intervals, which covers missed hints
    participant.py     takes part once there is a catalogue, and founds it
"""
