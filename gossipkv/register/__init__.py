"""Registers: compare-and-swap without a coordinator (CASPaxos), and the metadata that lives in them.

Read in this order:

    ballot.py         the order of writes; configuration.py: acceptors and quorums
    messages.py       requests and replies of proposers and acceptors
    acceptor.py       promises and accepted values; proposer.py: rounds of prepare and accept
    changes.py        changes of a value, by name
    force.py          recovery when a majority is lost for good
    store.py          the interface of a store; space.py: the space in a store
    shell.py          all parts under Trio, over the space and the connections to other nodes
    metadata/         tables' maps, and the catalogue of tables

Gossip reports probable state and never decides. A register's decisions need a majority of few named acceptors.
"""
