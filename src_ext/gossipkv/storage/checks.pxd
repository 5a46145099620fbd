"""Assertions without the GIL, where `assert` cannot be used; they are checked in debug builds only."""

cdef extern from "gossipkv/checks.h" nogil:
    bint CHECKED "GKV_CHECKS"


cdef inline int require(bint holds, const char* invariant) except -1 nogil:
    """Raise AssertionError in debug builds if the invariant does not hold."""
    if CHECKED and not holds:
        with gil:
            raise AssertionError(invariant.decode())
    return 0
