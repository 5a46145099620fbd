"""The wire: frames bounded, messages taken apart and written, latencies counted."""

include "frames.pyx"
include "message.pyx"
include "latency.pyx"
