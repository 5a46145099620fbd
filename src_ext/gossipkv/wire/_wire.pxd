"""The wire: declarations for other extensions."""

include "frames.pxd"
include "message.pxd"
include "latency.pxd"
