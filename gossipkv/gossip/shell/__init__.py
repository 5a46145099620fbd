"""The Trio shell of gossip: sockets, timers and a disk for a core that has none.

Read in this order:

    driver.py       the order in which a core is called, in a node and in the simulated world
    agent.py        datagrams and timers; one request to another node over TCP
    persistence.py  state that must survive the node, on its way to the disk
    seeds.py        the names of the members to join
    key_file.py     the file of a key ring
"""
