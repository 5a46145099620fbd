"""Connections to the other nodes.

Read in this order:

    hello.py        the first message of two nodes on a connection between them
    proof.py        how nodes prove by a key of gossip that they are nodes
    dialling.py     how another node is dialled, and the proof that it is that node
    greeting.py     how two nodes say who they are, when one dials the other
    connections.py  which members are dialled, when again, and the questions asked on connections
"""
