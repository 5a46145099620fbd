"""Log entries on their way between two nodes.

Read in this order:

    messages.py  the form of messages on the wire
    log_tail.py  the end of the log in memory
    cursors.py   positions in the log from which lagging replicas are fed
    sender.py    the log sender: it feeds one other node
    receiver.py  the log receiver: it takes entries from messages
    peer.py      another node, as the local replicas know it
"""
