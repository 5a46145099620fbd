"""The wire: bounds frames, reads and writes messages, counts latencies."""

include "frames.pyx"
include "message.pyx"
include "latency.pyx"
