"""Formats: declarations for other extensions."""

include "lines.pxd"
include "json_text.pxd"
