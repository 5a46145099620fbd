"""Replication: vector clocks, records, and the log entries that contain both."""

include "vector_clock.pyx"
include "record.pyx"
include "entry.pyx"
