"""Anti-entropy: two nodes with different knowledge make each other equal.

Read in this order:

    state_hash.py   eight bytes that are equal on nodes with equal knowledge
    differences.py  digests of knowledge, their comparison, and the replies
    exchange.py     when, with which node and over which transport differences are exchanged
"""
