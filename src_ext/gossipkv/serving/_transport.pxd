"""The declarations of transports for other extensions."""

include "transport/interface.pxd"
include "tls/openssl.pxd"
include "tls/connections.pxd"
include "tls/tunnels.pxd"
