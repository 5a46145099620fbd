"""Transports of connections: sockets and epoll, TLS over them, and the common interface."""

include "transport/interface.pyx"
include "tls/openssl.pyx"
include "tls/signers.pyx"
include "tls/connections.pyx"
include "tls/tunnels.pyx"
include "transport/sockets.pyx"
