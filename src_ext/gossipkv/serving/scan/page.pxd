"""One page of a scan, made in slices; `page.pyx` explains the design."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint64_t

from gossipkv.storage._storage cimport Record, Walk
from gossipkv.wire._buffer cimport Buffer
from gossipkv.wire._wire cimport Blob

cdef enum PageResult:
    PAGE_NO_MEMORY = -3
    PAGE_TOO_LARGE = -2  # the first record's value exceeds the limit of answers
    PAGE_DAMAGED = -1
    PAGE_UNFINISHED = 0
    PAGE_READY = 1
    PAGE_COLD = 2  # a needed page of `cold` is not in memory

cdef enum PageStage:
    OPENING = 0
    ORDERING
    MERGING
    READY

cdef enum:
    # A record costs one unit of work, about 50 ns; the other costs are in proportion.
    OPEN_WORK = 16
    BYTES_PER_WORK = 512
    # The bytes before the records: the answer's envelope (8), the result's head (1), and the head of the records'
    # array.
    ARRAY_HEAD_BYTES = 5
    PAGE_HEAD_BYTES = 14

cdef struct KeyRange:
    # Keys from `start` (inclusive) to `end` (exclusive), where these are given.
    Blob start
    Blob end
    bint has_start
    bint has_end
    bint reverse

cdef struct FileHead:
    uint64_t word
    PyObject* file  # borrowed
    Record record  # valid only in the slice that read it if the file is compressed
    uint64_t position
    uint64_t slice
    Walk walk

cdef struct TreeEntry:
    uint64_t word  # bytes of the head's key, which decide most comparisons
    Py_ssize_t head

cdef struct ScanPage:
    KeyRange range
    PyObject** files  # borrowed, without NULL
    Py_ssize_t file_count
    Py_ssize_t limit
    Py_ssize_t max_bytes
    Py_ssize_t max_value

    PageStage stage
    uint64_t slice
    Py_ssize_t at  # number of opened files, then of ordered heads
    FileHead* heads  # one for each file with a record in the range
    Py_ssize_t head_count
    Py_ssize_t head_room
    Py_ssize_t shared  # number of first bytes that all keys of all files share
    PyObject* first_file  # first file with any record
    TreeEntry* losers
    TreeEntry winner
    PyObject* damaged
    bint waits  # reads wait for the disk
    bint owes  # the winner's record was written, and the next one of its file is not found yet
    PyObject* cold  # the file with a lookup that stopped at a missing page
    Py_ssize_t too_large

    Buffer out
    Py_ssize_t records
    Py_ssize_t left  # bytes left of `max_bytes`
    Py_ssize_t last_key  # offset in `out`
    Py_ssize_t last_size
    bint more  # a record was left for the next page


cdef void page_begin(
    ScanPage* page, PyObject** files, Py_ssize_t file_count, const KeyRange* range,
    Py_ssize_t limit, Py_ssize_t max_bytes, Py_ssize_t max_value,
) noexcept nogil
cdef int page_run(ScanPage* page, int64_t* work) noexcept nogil
cdef PyObject* page_look(ScanPage* page, Py_ssize_t ahead) noexcept nogil
cdef void page_close(ScanPage* page, const uint8_t* envelope, Py_ssize_t size) noexcept nogil
cdef void page_release(ScanPage* page) noexcept nogil
