"""The other nodes, as a node reaches them.

hello.py        what two nodes say first on a connection between them
dialling.py     how another node is dialled, and what proves that it is that node
proof.py        how they prove there that they are nodes
connections.py  those connections: who is dialled, when again, and what is asked on them
sharing.py      how the databases take part in the cluster: what others say, and what is asked of them
"""
