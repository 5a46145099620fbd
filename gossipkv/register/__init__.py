"""Registers: compare-and-swap without a coordinator (CASPaxos), and the metadata that lives in them.

Read in this order:

    ballot.py         the order of writes
    configuration.py  acceptors and quorums
    messages.py       requests and replies of proposers and acceptors
    changes.py        changes of a value, by name
    acceptor.py       promises and accepted values
    proposal.py       the vocabulary of the proposer
    proposer.py       rounds of prepare and accept
    force.py          recovery when a majority is lost for good
    seen.py           positions by which acceptors detect a restored older copy of a store
    store.py          the interface of a store
    space.py          the space of decisions in a store
    shell.py          all parts under Trio, over the space and the connections to other nodes
    metadata/         tables' maps, and the catalogue of tables

Gossip reports probable state and never decides. A register's decisions need a majority of few named acceptors.
"""
