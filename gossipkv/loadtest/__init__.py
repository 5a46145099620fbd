"""Puts a server under load and checks every answer: closed loop, open loop at a given rate, latency histogram.

Read in this order:

    load.py         a load, and what came of it
    _generator.pyx  the connections, when each request goes out, what came back
    _dialect.pyx    what it asks and how it judges, in any protocol; _rpc.pyx: in ours
    _tally.pyx      what was counted
"""
