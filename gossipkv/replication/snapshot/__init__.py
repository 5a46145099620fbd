"""Bulk loads: a partition is copied whole where the log does not reach back far enough.

Read in this order:

    transfer.py    loads, page by page, by a source and a target
"""
