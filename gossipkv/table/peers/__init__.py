"""Communication of a node's tables with other nodes.

Read in this order:

    hints.py        hints in the gossip tree about maps; a hint decides nothing, it causes a read of the register
    words.py        words by which a node recognizes members that it has dialled
    peer_client.py  requests to other nodes, by uuid
"""
