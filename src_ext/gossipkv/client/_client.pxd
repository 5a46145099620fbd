"""The client's declarations for other extensions."""

include "requests.pxd"
