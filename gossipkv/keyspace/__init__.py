"""The key space: pure functions from a key and a partition count to a partition number.

Read in this order:

    partitioner.py  the partition of a key, under each function that existing jobs use
    time_key.py     the position of the time in the keys of a time series
    key_index.py    the range of a key, by the first keys of all
"""
