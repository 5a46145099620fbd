"""The storage engine: its log, memtables and merges, and the views that read them."""

include "log.pyx"
include "committer.pyx"
include "memtable.pyx"
include "merge.pyx"
include "merged_scan.pyx"
include "view.pyx"
include "writer.pyx"
