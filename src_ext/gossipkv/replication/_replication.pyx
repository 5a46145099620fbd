"""Replication: clocks, records, log entries, merging, acknowledgements, feeds, and calm replicas."""

include "vector_clock.pyx"
include "record.pyx"
include "entry.pyx"
include "merging.pyx"
include "calm.pyx"
include "acks.pyx"
include "feed.pyx"
