"""Replication: vector clocks, records, the log entries that contain both, and calm replicas."""

include "vector_clock.pyx"
include "record.pyx"
include "entry.pyx"
include "calm.pyx"
