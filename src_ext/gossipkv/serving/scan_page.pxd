"""One page of a scan, which can be made in slices.  The idea stands in `scan_page.pyx`."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint64_t

from gossipkv.storage._storage cimport Record, Walk
from gossipkv.wire._buffer cimport Buffer
from gossipkv.wire._wire cimport Blob

cdef enum PageResult:
    PAGE_NO_MEMORY = -3
    PAGE_TOO_LARGE = -2  # the first record has a longer value than may be answered
    PAGE_DAMAGED = -1
    PAGE_UNFINISHED = 0
    PAGE_READY = 1
    PAGE_COLD = 2  # a page of `cold` that it needs is not in memory

cdef enum PageStage:
    OPENING = 0
    ORDERING
    MERGING
    READY

cdef enum:
    # What a record costs, about 50 ns, is one unit of work; the others are in proportion.
    OPEN_WORK = 16
    BYTES_PER_WORK = 512
    # Before the records: the answer's envelope (8), the result's head (1), and that of the array of records.
    ARRAY_HEAD_BYTES = 5
    PAGE_HEAD_BYTES = 14

cdef struct Range:
    # Keys from `start` (inclusive) to `end` (exclusive), as far as there are these.
    Blob start
    Blob end
    bint has_start
    bint has_end
    bint reverse

cdef struct Head:
    uint64_t word
    PyObject* file  # borrowed
    Record record  # of a compressed file: good in the slice that read it only
    uint64_t position
    uint64_t slice
    Walk walk

cdef struct Entry:
    uint64_t word  # of the head's key, so that most comparisons need no more
    Py_ssize_t head

cdef struct Page:
    Range range
    PyObject** files  # borrowed; none is NULL
    Py_ssize_t file_count
    Py_ssize_t limit
    Py_ssize_t max_bytes
    Py_ssize_t max_value

    PageStage stage
    uint64_t slice
    Py_ssize_t at  # files opened, then heads ordered
    Head* heads  # of the files that have a record in the range
    Py_ssize_t head_count
    Py_ssize_t head_room
    Py_ssize_t shared  # how many bytes all keys of all files have in common at their beginning
    PyObject* first_file  # that has any record
    Entry* losers
    Entry winner
    PyObject* damaged
    bint waits  # for the disk
    bint owes  # the winner's file was read from, and its next record not found yet
    PyObject* cold  # the file whose lookup has stopped at a page that is not in memory
    Py_ssize_t too_large

    Buffer out
    Py_ssize_t records
    Py_ssize_t left  # of `max_bytes`
    Py_ssize_t last_key  # where it stands in `out`
    Py_ssize_t last_size
    bint more  # a record was left for the next page


cdef void page_begin(
    Page* page, PyObject** files, Py_ssize_t file_count, const Range* range,
    Py_ssize_t limit, Py_ssize_t max_bytes, Py_ssize_t max_value,
) noexcept nogil
cdef int page_run(Page* page, int64_t* work) noexcept nogil
cdef PyObject* page_look(Page* page, Py_ssize_t ahead) noexcept nogil
cdef void page_close(Page* page, const uint8_t* envelope, Py_ssize_t size) noexcept nogil
cdef void page_release(Page* page) noexcept nogil
