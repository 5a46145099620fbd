"""The storage engine: what other extensions may use."""

include "operation.pxd"
include "log.pxd"
include "memtable.pxd"
include "merged_scan.pxd"
