"""Formats: what other extensions may use."""

include "lines.pxd"
include "json_text.pxd"
