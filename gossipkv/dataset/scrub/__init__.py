"""The scrub: all served data is checked again within `scrub_period`, since disks and caches decay silently.

A page in the system's cache and its place on the disk can be damaged independently, so the scrub has two halves:

* The check of a page's first read is forgotten, a slice of every file at a time.  The next read checks the page again,
  in the cache from which it is served.
* A low-priority child process slowly reads every file back from the disk, past the cache.

Read in this order:

    read_back.py  the program that reads a version back from the disk
    parent.py     the node's side of that program
    scrub.py      the schedule of both halves
"""
