"""A load generator: declarations for other extensions."""

include "records.pxd"
include "dialect.pxd"
include "schedule.pxd"
include "keys.pxd"
include "ledger.pxd"
include "json_lines.pxd"
include "link.pxd"
