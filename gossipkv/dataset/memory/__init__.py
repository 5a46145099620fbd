"""Which of the files that are served are resident.

residency.py    how far what is mapped fits into memory
paging.py       it is made so: warmed, left to the system, or read page by page
"""
