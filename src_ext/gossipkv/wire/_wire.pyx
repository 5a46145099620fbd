"""The wire: bounds frames, reads and writes messages, counts latencies, judges hosts."""

include "frames.pyx"
include "message.pyx"
include "latency.pyx"
include "hosts.pyx"
