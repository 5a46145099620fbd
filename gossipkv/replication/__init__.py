"""How the copies of a partition become equal.

Read in this order:

    clock.py          how far a copy has come, origin by origin
    time.py           when a write was made
    record.py         what a write says of a key, and which of two wins
"""
