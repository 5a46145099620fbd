"""Registers: compare-and-swap without a coordinator (CASPaxos), and the metadata that lives in them.

Read in this order:

    ballot.py         the order of writes
    configuration.py  acceptors and quorums
    messages.py       requests and replies of proposers and acceptors
    changes.py        changes of a value
    acceptor.py       promises and accepted values
    proposal.py       the vocabulary of the proposer
    proposer.py       rounds of prepare and accept
    force.py          recovery when a majority is lost for good
    entries.py        an immutable ordered map
    edits.py          the value of a register that holds a map, and the digest of a map
    state.py          the map of one register on one node: base, accepted transactions, history
    snapshot.py       the reading of another node's map, page by page
    seen.py           positions by which acceptors detect a restored older copy of a store
    store.py          the interface of a store
    space.py          the space of decisions in a store
    maps.py           the maps of a node under Trio: in the store, and exchanged with other nodes
    follow.py         the polls by which a node follows all maps
    shell.py          acceptor and proposers under Trio, over the space and the connections to other nodes
    metadata/         tables' maps, and the catalogue of tables

Gossip reports probable state and never decides. A register's decisions need a majority of few named acceptors.
"""
