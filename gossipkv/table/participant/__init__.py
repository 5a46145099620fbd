"""The part of this node in METADATA transactions.

Read in this order:

    participant.py  takes part once there is a catalogue, founds it, and reads registers that hints name
"""
