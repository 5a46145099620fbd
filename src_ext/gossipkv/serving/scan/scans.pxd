"""Running scans: each connection's requests, and the order of turns; `scans.pyx` explains the design."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint32_t, uint64_t

from gossipkv.wire._buffer cimport Buffer
from gossipkv.wire._wire cimport Envelope

cdef enum:
    # Work of one slice, in units of some 50 ns: about 100 µs if the data is in memory.
    SLICE_WORK = 2000
    # A batch merely copies values, so its slice is larger: a poll of the sockets costs as much as ten keys.
    BATCH_SLICE_WORK = 4000
    # Work of a batch before the next connection's turn; nearly all batches end within it. Batches begun side by side
    # would evict each other's data from the caches, and could not reuse each other's memory.
    BATCH_TURN_WORK = 20000
    # Each request costs this much, however little it asks for.
    REQUEST_WORK = 4

cdef enum ScannerState:
    NOWHERE = 0  # no unanswered scan or batch
    RUNNING = 1
    WAITING = 2
    PARKED = 3  # the peer does not read
    FETCHING = 4  # the first job needs pages that are not in memory

cdef struct ScanJob:
    ScanJob* next  # next job of the same connection
    GetMany* batch  # the batch to read; NULL for a scan
    uint32_t msgid
    int64_t received_ns
    bint begun
    Buffer params  # a copy, once the request has left the receive buffer
    Buffer bounds  # keys that the plan derived from the given ones
    ScanPlan plan
    PyObject* table  # the table that the job reads from
    ScanPage page
    Py_ssize_t held
    int stops  # consecutive stops at missing pages without a record in between
    Py_ssize_t stopped_at  # number of records at the last stop
    uint64_t ahead  # bytes read ahead of a missing page

cdef struct Scanner:
    Scanner* next
    Scanner* previous
    uint64_t handle  # the connection's handle
    ScannerState place
    int64_t turn_work  # work done in this turn
    Py_ssize_t held_bytes
    ScanJob* first
    ScanJob* last
    PageWait wait

cdef struct ScannerQueue:
    Scanner* first
    Scanner* last
    uint32_t count

cdef struct Scans:
    ReadLimits limits
    Py_ssize_t scan_limit
    ScannerQueue running
    ScannerQueue waiting
    uint32_t fetching
    ScanJob* spare  # memory of an ended job, for reuse
    Py_ssize_t held_bytes
    uint64_t answered
    uint64_t slices
    uint64_t records
    uint64_t searches


cdef list release_unread(list tables)
cdef dict scans_counters(const Scans* scans)
cdef void scans_release(Scans* scans) noexcept nogil
cdef int scans_ask(
    Scans* scans, Scanner* scanner, PublishedTable table, const Envelope* request, int64_t received_ns, bint may_wait,
    int64_t* work, Buffer* out,
) noexcept nogil
cdef int scans_queue(Scans* scans, Scanner* scanner, GetMany* batch) noexcept nogil
cdef Scanner* scans_turn(Scans* scans) noexcept nogil
cdef int scans_run(Scans* scans, Scanner* scanner, PublishedTable table, int64_t* work, Buffer* out) noexcept nogil
cdef void scans_read_cold(Scanner* scanner, ColdPages cold) noexcept nogil
cdef bint scans_fetch(Scans* scans, Scanner* scanner) noexcept nogil
cdef void scans_go_on(Scans* scans, Scanner* scanner) noexcept nogil
cdef void scans_yield(Scans* scans, Scanner* scanner, int64_t work) noexcept nogil
cdef void scans_done(Scans* scans, Scanner* scanner) noexcept nogil
cdef void scans_park(Scans* scans, Scanner* scanner) noexcept nogil
cdef void scans_unpark(Scans* scans, Scanner* scanner) noexcept nogil
cdef void scans_drop(Scans* scans, Scanner* scanner) noexcept nogil


cdef inline bint scans_have_turn(const Scans* scans) noexcept nogil:
    return scans.running.count > 0 or scans.waiting.count > 0


cdef inline bint scans_have_begun(const Scanner* scanner) noexcept nogil:
    """True if the connection's first scan or batch has been started."""
    return scanner.first.begun or (scanner.first.batch != NULL and scanner.first.batch.table != NULL)
