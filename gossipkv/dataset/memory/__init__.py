"""The residency of the served files.

Read in this order:

    residency.py  decides how much of the mapped files fits into memory
    paging.py     carries that out: files are warmed, left to the system, or read page by page
"""
