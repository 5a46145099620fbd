"""A client: what other extensions may use."""

include "requests.pxd"
