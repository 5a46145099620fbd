from cpython.object cimport PyObject
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from gossipkv.storage._records cimport Slice
from gossipkv.storage.engine._merged_scan cimport MOST_RUNS, Bounds, RunFiles, Sources


cdef struct Probe:
    # Where a key may be in one run.
    PyObject* file          # NULL: the key is below all of the run.
    uint64_t hash
    uint32_t place


cdef struct Lookup:
    const uint8_t* key      # The internal one.
    Py_ssize_t size
    uint64_t hash
    int found               # In a memtable: 1, or 0 for a tombstone; -1: the runs must be asked.
    Slice value
    int asked               # How many runs were.
    PyObject* damaged
    const uint8_t* bad_record
    Probe probes[MOST_RUNS]


cdef struct Span:
    # What a space takes of a run: from which file to which one, and how much.
    Py_ssize_t first
    Py_ssize_t last
    uint64_t size_bytes


cdef class View:
    cdef Sources sources
    cdef tuple memtables
    cdef tuple files        # Of all runs.
    cdef list first_keys
    cdef bint open

    cdef int add_run(self, object run, list files) except -1
    cdef int ensure_open(self) except -1
    cdef object damage(self, PyObject* damaged, const uint8_t* bad_record)

    # The stages of a lookup, in this order.
    cdef void begin(self, Lookup* lookup) noexcept nogil
    cdef void fetch(self, Lookup* lookup) noexcept nogil
    cdef int find(self, Lookup* lookup, Slice* value) noexcept nogil
    cdef bint confirm(self, Lookup* lookup) noexcept nogil

    cdef int span_of(self, const RunFiles* run, const Bounds* space, Span* span) except -1
    cdef uint64_t size_in(self, int memtable, const Bounds* space) noexcept nogil
    cdef object middle_of_run(self, const RunFiles* run, const Bounds* space)
