"""The bytes of gossip.

Read in this order:

    fields.py       how fields are read and written
    messages.py     the messages, byte by byte
    compression.py  parts on their way over TCP
    prefix.py       how each packet begins: whose it is
    key_ring.py     the keys that packets are sealed with; sealing.py seals
    envelope.py     around each message, sealed or not: whether it arrived whole
"""
