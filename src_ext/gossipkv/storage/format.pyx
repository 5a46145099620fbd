"""The index's hash, open to tests and tools; everything else of the format is inline in `format.pxd`."""

from libc.stdint cimport uint64_t


def hash64(bytes key not None, uint64_t seed=0):
    """The 64-bit hash that chooses a key's bucket and fingerprint (`docs/development/sorted-file.md`)."""
    return hash64_of(<const unsigned char*> key, len(key), seed)
