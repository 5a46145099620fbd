"""Replication: vector clocks, records, the log entries that contain both, acknowledgements, feeds, and calm replicas."""

include "vector_clock.pyx"
include "record.pyx"
include "entry.pyx"
include "calm.pyx"
include "acks.pyx"
include "feed.pyx"
