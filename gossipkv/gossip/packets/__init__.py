"""The bytes of gossip.

Read in this order:

    fields.py       reading and writing of fields
    messages.py     the messages, byte by byte
    compression.py  parts of messages over TCP
    prefix.py       the first bytes of each packet: its cluster and form
    key_ring.py     the keys that seal packets; sealing.py seals them
    envelope.py     the frame around each message, sealed or not, with its checksum
"""
