"""Two nodes that know different things make each other equal.

Read in this order:

    state_hash.py   eight bytes that are equal where the same is known
    differences.py  what each tells of what it knows, what each lacks, and how it is told
    exchange.py     when, with whom, on what way, and what becomes of it
"""
