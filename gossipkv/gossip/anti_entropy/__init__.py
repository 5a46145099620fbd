"""Two nodes that know different things make each other equal.

Read in this order:

    state_hash.py   eight bytes that are equal where the same is known
    digests.py      what each tells of what it knows, and what each lacks
    answers.py      what is told to a node that lacks it
    exchange.py     when, with whom, and what becomes of it; transport.py: on what way
"""
