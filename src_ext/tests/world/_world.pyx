"""What simulations drive in place of sockets: connections of a core, and streams of bytes."""

include "driver.pyx"
include "nodes/streams.pyx"
