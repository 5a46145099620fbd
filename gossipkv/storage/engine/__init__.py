"""The log-structured store of a node: batches of puts and deletes, synced before they can be read.

Read in this order:

    manifest.py    the files and spaces of a store, readable without opening it
    options.py     sizes of its parts, and its counters
    segments.py    the files of the log; in C: `operation.pxd` (a batch), `log.pyx` (a frame)
    recovery.py    which of the log counts after a crash
    log_reader.py  following the log while it is written, or later
    policy.py      when to merge, and which runs; the pressure on writers
    merge.py       merges segments and runs into runs; in C: `memtable.pyx`, `view.pyx`, `merged_scan.pyx`, `merge.pyx`
    child.py       merges in a process of its own
    parent.py      the node's side of that process
    committing.py  the thread that writes and syncs; in C: `writer.pyx`, `committer.pyx`
    upkeep.py      changes of the manifest, and removal of old files
    engine.py      the core without I/O: decides writes, reads, merges and refusals; in C: `gate.pyx`, for serving loops
    works.py       work besides writing the log, as values, and how a disk does it
    opening.py     locks and recovers a store and begins a new life
    reading.py     the read methods
    shell.py       the store under Trio: waiting, throttling, background work
    verify.py      checks every byte without opening the store
"""

import gossipkv.storage.engine._engine  # noqa: F401  # Comes first: its writer imports `segments`, which imports it.
