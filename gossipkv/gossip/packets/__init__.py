"""The bytes of gossip.

Read in this order:

    fields.py       reading and writing of fields
    messages.py     the messages, byte by byte
    compression.py  parts of messages over TCP
    prefix.py       the first bytes of each packet: its cluster and form
    key_ring.py     the keys that seal packets
    sealing.py      packets sealed by AES-256-GCM, with protection against replay
    envelope.py     the frame around each message, sealed or not, with its checksum
"""
