"""Transports of connections: sockets and epoll, TLS over them, and the common interface."""

include "transport.pyx"
include "tls.pyx"
include "signers.pyx"
include "secured.pyx"
include "tunnels.pyx"
include "sockets.pyx"
