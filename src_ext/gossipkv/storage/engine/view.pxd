"""The view of a store for readers without the GIL; `view.pyx` explains the design, and the order of the stages."""

from cpython.object cimport PyObject
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from gossipkv.storage._storage cimport Slice, SortedFile

cdef enum:
    SHORT_KEY_BYTES = 256       # An internal key up to this size needs no memory of its own.


cdef struct RunProbe:
    # A candidate place of a key in one run.
    PyObject* file          # NULL: the key is below all of the run.
    uint64_t hash
    uint32_t place


cdef struct StoreLookup:
    const uint8_t* key      # The internal key.
    Py_ssize_t size
    uint64_t hash
    Leaf* leaf              # NULL: no memtable may have the key.
    int layer               # The number of the leaf's memtable.
    int at                  # Place in the leaf of the first word that is not less than the key's; -1: not searched yet.
    Slice value
    int asked               # Number of runs asked.
    PyObject* damaged
    const uint8_t* bad_record
    RunProbe probes[MAX_RUNS]


cdef struct PendingLookup:
    StoreLookup lookup
    uint8_t key[SHORT_KEY_BYTES]


cdef struct SourceRange:
    # The records of a source within bounds, and the range of a run's files with them.
    Extent extent
    Py_ssize_t first
    Py_ssize_t last


cdef inline void write_space(uint8_t* at, uint32_t space) noexcept nogil:
    at[0] = <uint8_t> (space >> 24)
    at[1] = <uint8_t> (space >> 16)
    at[2] = <uint8_t> (space >> 8)
    at[3] = <uint8_t> space


cdef class View:
    cdef ScanSources sources
    cdef tuple memtables
    cdef tuple files            # Files of all runs.
    cdef list first_keys
    cdef bint open

    cdef int add_run(self, object run, list files) except -1
    cdef int ensure_open(self) except -1
    cdef object damage(self, PyObject* damaged, const uint8_t* bad_record)
    cdef void begin(self, StoreLookup* lookup) noexcept nogil
    cdef void fetch(self, StoreLookup* lookup) noexcept nogil
    cdef void fetch_from_runs(self, StoreLookup* lookup) noexcept nogil
    cdef void locate(self, StoreLookup* lookup) noexcept nogil
    cdef void fetch_all(self, StoreLookup** lookups, Py_ssize_t count) noexcept nogil
    cdef int ask_memtables(self, StoreLookup* lookup) noexcept nogil
    cdef int find(self, StoreLookup* lookup, Slice* value) noexcept nogil
    cdef bint confirm(self, StoreLookup* lookup) noexcept nogil
    cdef int span_of(self, int source, const KeyBounds* bounds, SourceRange* span) except -1
    cdef int add_file(self, SortedFile file, const Slice* start, const Slice* end, Extent* extent) except -1
    cdef Extent extent_within(self, uint32_t space, bytes start, bytes end) except *
    cdef bytes first_key(self, bytes low, bytes high)
    cdef bytes middle_of_run(self, const RunFiles* run, const KeyBounds* bounds, const SourceRange* span)
