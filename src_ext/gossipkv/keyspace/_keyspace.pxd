"""The declarations of the key space for other extensions."""

include "hashing.pxd"
