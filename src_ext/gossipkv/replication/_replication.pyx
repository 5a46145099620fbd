"""Replication: vector clocks, records, and the entries of a log that carry both."""

include "vector_clock.pyx"
include "record.pyx"
include "entry.pyx"
