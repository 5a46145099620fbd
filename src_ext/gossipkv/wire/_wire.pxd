"""The wire: what other extensions may use."""

include "frames.pxd"
include "message.pxd"
include "latency.pxd"
