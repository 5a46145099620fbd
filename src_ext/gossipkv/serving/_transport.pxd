"""What carries the bytes of connections: what other extensions may use."""

include "transport.pxd"
include "tls.pxd"
include "secured.pxd"
include "tunnels.pxd"
