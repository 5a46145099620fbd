"""The log-structured store of a node: batches of puts and deletes in, synced before they can be read.

Read in this order:

    manifest.py     what a store consists of, also told to people without opening it
    options.py      how it is set up, and what it counts
    operation.pxd  the bytes of a batch; log.pyx: of a frame; segments.py: of the log's files
    recovery.py     what counts of the log after a crash; log_reader.py: reading it later, by pages or whole
    memtable.pyx   what is in no run yet
    view.pyx       all that is in the store, read as one: a key; merged_scan.pyx: a range
    merge.py        from segments and runs to runs; merge.pyx: record by record; policy.py: when, and which
    child.py        merging in a process of its own; parent.py: who starts it
    writer.pyx     the writing end of the log; committer.pyx, committing.py: the thread that writes and syncs it
    upkeep.py       what a store consists of, and how that changes
    engine.py       the store without a world: what is written next, what may be read, when there is no room
    works.py        what there is to do beside the writing, and how it is done on a disk
    opening.py      locked, recovered, in a new life; reading.py: what a store answers
    shell.py        the store under Trio: who waits, who is slowed, what is done beside the writing
    backup.py       copied while it runs, and put back as another one
    verify.py       every byte of it checked, without opening it
"""

import gossipkv.storage.engine._engine  # noqa: F401  # Comes first: its writer imports `segments`, which imports it.
