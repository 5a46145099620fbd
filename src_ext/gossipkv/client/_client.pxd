"""The client's declarations for other extensions."""

include "arrow.pxd"
include "requests.pxd"
