"""The storage engine: declarations for other extensions."""

include "operation.pxd"
include "log.pxd"
include "memtable.pxd"
include "merge.pxd"
include "merged_scan.pxd"
include "view.pxd"
include "gate.pxd"
