"""Connections of a core, and streams of bytes, that simulations drive in place of sockets."""

include "driver.pyx"
include "nodes/streams.pyx"
