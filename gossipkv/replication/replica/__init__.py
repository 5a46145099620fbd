"""One replica of a partition.

Read in this order:

    clock.py      packed vector clocks
    hlc.py        hybrid logical time, and the skew of other clocks
    record.py     the form of a record; the newer one wins
    keys.py       keys of a replica in the store
    intern.py     one object for equal values of many replicas
    bootstrap.py  state of a replica that is still being loaded
    token_keys.py  keys of the tokens that clients carry
    calm.py       what serving loops see of a replica that is at rest
    replica.py    the replica: it merges entries and writes batches
    smeared.py    smeared puts, originated under the time of their acceptance
    status.py     the status of a replica, as another node reports it
    acks.py       counts the confirmations of a write for its level
    dirty.py      replicas with something to compact, digest or report
    spaces.py     the replicas that share a space of the store
"""
