"""A scan over memtables and runs as one; `merged_scan.pyx` explains the design."""

from cpython.object cimport PyObject
from libc.stdint cimport uint8_t, uint64_t

from gossipkv.storage._storage cimport Record, Slice, Walk

cdef enum:
    MAX_MEMTABLES = 4      # Two, and one of each that a merge has taken over and not finished.
    MAX_RUNS = 32          # Twice as many young runs as a store takes, so a store over its limits still opens.
    MAX_SOURCES = MAX_MEMTABLES + MAX_RUNS
    MAX_PASSED = 4096      # Tombstones and replaced records in one page, some 100 ns each.

cdef enum StepResult:
    STEP_DAMAGED = -1
    STEP_ENDED = 0
    STEP_RECORD = 1
    STEP_UNFINISHED = 2     # The limit of skipped records was reached.

cdef struct RunFiles:
    # One run: its files in key order, and the first key of each.
    PyObject** files
    Slice* first_keys
    Py_ssize_t count

cdef struct ScanSources:
    # The sources of one read, the newest first.
    PyObject* memtables[MAX_MEMTABLES]
    RunFiles runs[MAX_RUNS]
    int memtable_count
    int run_count

cdef struct KeyBounds:
    # Internal keys of one space: from `start` (inclusive) to `end` (exclusive). An `end` that consists of a space only
    # is the next space; an empty one lies behind all spaces.
    Slice start
    Slice end
    bint reverse

cdef struct SourceHead:
    uint64_t word           # Word of the key behind the space, inverted for scans backwards.
    Slice key
    Slice value
    int age                 # 0 for the newest source.
    # A memtable uses `cursor`, a run the fields below it; `run` is NULL for a memtable.
    MemtableCursor cursor
    const RunFiles* run
    Py_ssize_t at           # Index in the run's files.
    Py_ssize_t first_at     # First index of the scan in the run.
    Walk walk

cdef struct MergedScan:
    KeyBounds bounds
    const ScanSources* sources
    SourceHead heads[MAX_SOURCES]
    int order[MAX_SOURCES]     # Heads with a record left, the next one first.
    int count
    int passed
    bint used                   # The first head's record was handed out.
    PyObject* damaged           # A file; borrowed.
    const uint8_t* bad_record   # A value with an unknown flag; NULL: the file knows its damage.


cdef Py_ssize_t file_of(const RunFiles* run, const uint8_t* key, Py_ssize_t size) noexcept nogil
cdef int scan_begin(MergedScan* scan, const ScanSources* sources, const KeyBounds* bounds) noexcept nogil
cdef int scan_next(MergedScan* scan, Slice* key, Slice* value) noexcept nogil
cdef int scan_peek(MergedScan* scan, Slice* key) noexcept nogil
cdef PyObject* scan_loss(const MergedScan* scan) noexcept nogil
