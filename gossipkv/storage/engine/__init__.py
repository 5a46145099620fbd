"""The log-structured store of a node: batches of puts and deletes, synced before they can be read.

Read in this order:

    manifest.py     the files and spaces of a store, readable without opening it
    options.py      sizes of its parts, and its counters
    operation.pxd   the bytes of a batch; log.pyx: of a frame; segments.py: of the log's files
    recovery.py     which of the log counts after a crash; log_reader.py: following the log later
    memtable.pyx    records that are in no run yet
    view.pyx        reads of a key over memtables and runs; merged_scan.pyx: of a range
    merge.py        merges segments and runs into runs; merge.pyx: record by record; policy.py: when, and which
    child.py        merges in a process of its own; parent.py: starts that process
    writer.pyx      plans writes of the log; committer.pyx, committing.py: the thread that writes and syncs
    upkeep.py       changes of the manifest, and removal of old files
    engine.py       the core without I/O: decides writes, reads, merges and refusals
    works.py        work besides writing the log, as values, and how a disk does it
    opening.py      locks and recovers a store and begins a new life; reading.py: the read methods
    shell.py        the store under Trio: waiting, throttling, background work
    backup.py       copies a running store, and restores the copy as a new store
    verify.py       checks every byte without opening the store
"""

import gossipkv.storage.engine._engine  # noqa: F401  # Comes first: its writer imports `segments`, which imports it.
