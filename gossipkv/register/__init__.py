"""What was decided: a compare-and-swap register without a coordinator, and what stands in such registers.

Read in this order:

    ballot.py         who may write, in which order; configuration.py: who accepts, and what is a quorum
    messages.py       what they say to each other
    acceptor.py       what is promised and accepted; proposer.py: rounds of prepare and accept
    changes.py        what is proposed, by name
    force.py          how to go on when a majority is lost for good
    store.py          what is needed of a store; space.py: where it is kept in one
    shell.py          all of it under Trio, over that and the connections to others
    metadata/         what stands in such registers: tables' maps, and the catalogue of tables

Gossip tells what is probably true, and never decides; what is decided here waits for a majority of a named few.
"""
