"""Pages of a table's scan; `page.pyx` explains the design."""

from libc.stdint cimport uint8_t, uint64_t

from gossipkv.storage._storage cimport Slice
from gossipkv.storage.engine._engine cimport KeyBounds, MergedScan, ScanSources
from gossipkv.wire._buffer cimport Buffer
from gossipkv.wire._wire cimport Cursor

cdef enum:
    MAX_ORIGINS = 8         # Origins of a source's records whose newest dots are kept.
    PAGE_TOMBSTONES = 4096  # Most tombstones that a page passes over.
    MAX_PAGE_BYTES = 1048576        # A page ends behind the record with which keys and records exceed this.

cdef enum PageStep:
    PAGE_NO_ROOM = -4
    PAGE_MALFORMED = -3     # A host's page is none.
    PAGE_NO_RECORD = -2
    PAGE_DAMAGE = -1
    PAGE_ENDED = 0
    PAGE_RECORD = 1         # The first source of the heap has the next record.
    PAGE_FULL = 2           # The same, but the page ends before that.

cdef struct PageSource:
    # A replica's scan or a host's page, with its next record.
    uint64_t word           # Bytes of the key, which decide most comparisons; inverted for scans backwards.
    Slice key
    Slice record            # NULL: the scan has passed too many deleted records, and goes on at the key.
    MergedScan* scan        # NULL: a host's page.
    Cursor rows
    Py_ssize_t left         # Number of records that are left in `rows`.
    int origins
    const uint8_t* dots[MAX_ORIGINS]        # The newest of each origin.

cdef struct PageMerge:
    PageSource* sources
    MergedScan* scans
    PageSource** heap       # The sources that have a record left, the one with the next record first.
    Py_ssize_t count
    bint reverse
    int passed              # So many deleted and replaced records a scan counts from its beginning.
    const PageSource* failed
    uint64_t now_ms         # Records that have expired by then are passed over; 0: none.
    Py_ssize_t limit        # Limits of the page, of which each is reduced: records,
    Py_ssize_t tombstones
    Py_ssize_t bytes_left   # and bytes of keys and records; below 0: the page is full.


cdef int open_page(
    PageMerge* page, Py_ssize_t sources, bint reverse, Py_ssize_t limit, uint64_t now_ms
) noexcept nogil
cdef void close_page(PageMerge* page) noexcept nogil
cdef int add_scan(
    PageMerge* page, Py_ssize_t number, const ScanSources* sources, const KeyBounds* bounds
) noexcept nogil
cdef int next_of_page(PageMerge* page, RecordView* record) noexcept nogil
cdef int take_of_page(PageMerge* page, const RecordView* record, bint as_value, Buffer* rows) noexcept nogil
cdef bint note_dot(PageSource* source) noexcept nogil
