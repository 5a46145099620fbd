"""The declarations of replication for other extensions."""

include "vector_clock.pxd"
include "record.pxd"
include "calm.pxd"
include "page.pxd"
