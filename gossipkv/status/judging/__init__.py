"""The judgement of all members' reports about themselves.

Read in this order:

    merging.py   equal statements of several members, each once
    members.py   reasons about members, and from their reports about themselves
    datasets.py  reasons about one dataset
    tables.py    reasons about one table, and about the acceptors of the catalogue
    judge.py     the one function that judges the overall health
"""
