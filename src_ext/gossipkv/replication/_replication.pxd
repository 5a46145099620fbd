"""Replication: what other extensions may use."""

include "vector_clock.pxd"
include "record.pxd"
