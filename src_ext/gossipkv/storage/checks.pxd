"""Assertions without the GIL, where `assert` cannot stand: checked in the debug build, nothing in the other."""

cdef extern from "gossipkv/checks.h" nogil:
    bint CHECKED "GKV_CHECKS"


cdef inline int require(bint holds, const char* invariant) except -1 nogil:
    """Raise AssertionError, in the debug build, if the invariant does not hold."""
    if CHECKED and not holds:
        with gil:
            raise AssertionError(invariant.decode())
    return 0
