"""Connections to the other nodes.

hello.py        the first message of two nodes on a connection between them
dialling.py     how another node is dialled, and the proof that it is that node
proof.py        how nodes prove by a key of gossip that they are nodes
connections.py  the connections: which members are dialled, when again, and the questions asked on them
sharing.py      the databases' part in the cluster: statements of other members, and questions to them
"""
