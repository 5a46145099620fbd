"""The counts of a run, by stage and target; `ledger.pyx` has the rules."""

from cpython.ref cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t


cdef enum:
    VERSIONS = 64
    VERSION_BYTES = 255

# The reasons of broken connections, in the order of `REASON_NAMES`.
cdef enum CloseReason:
    CLOSED_BY_PEER = 0
    RESET = 1
    BAD_ANSWER = 2
    UNASKED_ANSWER = 3
    SILENT = 4
    NO_MEMORY = 5
    REASONS = 6

cdef struct VersionCounts:
    uint64_t requests
    uint64_t wrong
    uint64_t untold
    Py_ssize_t size
    uint8_t name[VERSION_BYTES]

# The versions from which one server answered.
cdef struct ServerVersions:
    VersionCounts counts[VERSIONS]
    int32_t count
    int32_t last
    int32_t newest  # The newest of all versions; -1: none.


cdef class Ledger:
    cdef list tallies  # Ordered by stage, then by target; the list owns `tally_of`.
    cdef PyObject** tally_of
    cdef ServerVersions* versions  # Each target has one.
    cdef uint32_t stages
    cdef uint32_t targets

    cdef uint64_t ended(self) noexcept
    cdef void count_broken(self, uint32_t stage, uint32_t target, int reason, const Window* window) noexcept nogil
    cdef void count(self, uint32_t target, const Slot* slot, const Reply* reply, int64_t now) noexcept nogil
