"""The index's hash, exposed to tests and tools; the rest of the format is inline in `format.pxd`."""

from libc.stdint cimport uint64_t


def hash64(bytes key not None, uint64_t seed=0):
    """Return the 64-bit hash that chooses a key's bucket and fingerprint (`docs/development/sorted-file.md`)."""
    return hash64_of(<const unsigned char*> key, len(key), seed)
