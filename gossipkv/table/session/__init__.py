"""Sessions: a client reads its own writes and never steps back.

Read in this order:

    token.py      the session token: clocks of the partitions that a session has seen
    readiness.py  a replica is ready for a session once it covers the token; requests wait for that here
"""
