"""The key space: hashes of keys, and an index of sorted keys."""

include "hashing.pyx"
include "key_index.pyx"
