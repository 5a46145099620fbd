"""The declarations of transports for other extensions."""

include "transport.pxd"
include "tls.pxd"
include "secured.pxd"
include "tunnels.pxd"
