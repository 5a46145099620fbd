"""The declarations of replication for other extensions."""

include "vector_clock.pxd"
include "record.pxd"
include "token_keys.pxd"
include "calm.pxd"
include "page.pxd"
