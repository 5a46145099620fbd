"""The bytes of gossip.

Read in this order:

    fields.py       how fields are read and written
    messages.py     the messages, byte by byte
    compression.py  parts on their way over TCP
    envelope.py     around each message: whose it is, and whether it arrived whole
    key_ring.py     the keys that packets are sealed with; sealing.py seals
"""
