"""Scans under way: what each connection asked, and whose turn it is.  The idea stands in `scans.pyx`."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint32_t, uint64_t

from gossipkv.wire._buffer cimport Buffer
from gossipkv.wire._wire cimport Envelope

cdef enum:
    # Work of one slice, in units of some 50 ns: about 100 µs when the data is in memory.
    SLICE_WORK = 2000
    # The same of a batch, whose values are mere copies: a look at sockets costs as much as ten keys.
    BATCH_SLICE_WORK = 4000
    # Of a batch before the others have their turn: nearly all end in it.  Begun one beside the other, what is read of
    # each would fall out of the caches, and its memory would not be the next one's.
    BATCH_TURN_WORK = 20000
    # Of each request, however little it asks for.
    REQUEST_WORK = 4

cdef enum ScannerPlace:
    NOWHERE = 0  # has asked for nothing that is not answered
    RUNNING = 1
    WAITING = 2
    PARKED = 3  # the peer does not read
    FETCHING = 4  # pages are not in memory that its first one needs

cdef struct Job:
    Job* next  # of the same connection
    Batch* batch  # that is read; NULL: it is a scan
    uint32_t msgid
    int64_t received_ns
    bint begun
    Buffer params  # as they came, once the request has left the receive buffer
    Buffer bounds  # keys that the plan made out of those that were given
    Plan plan
    PyObject* table  # what it reads from
    Page page
    Py_ssize_t held
    int stops  # for pages that were not in memory, without a record in between
    Py_ssize_t stopped_at  # how many records there were then
    uint64_t ahead  # how much behind such a page is read with it

cdef struct Scanner:
    Scanner* next
    Scanner* previous
    uint64_t handle  # of the connection
    ScannerPlace place
    int64_t turn_work  # that was done in this turn
    Py_ssize_t held_bytes
    Job* first
    Job* last
    Wait wait

cdef struct Line:
    Scanner* first
    Scanner* last
    uint32_t count

cdef struct Scans:
    ReadLimits limits
    Py_ssize_t scan_limit
    Line running
    Line waiting
    uint32_t fetching
    Job* spare  # the memory of one that has ended
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
cdef int scans_queue(Scans* scans, Scanner* scanner, Batch* batch) noexcept nogil
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
    """Whether the connection's first scan, or batch, has begun to be read."""
    return scanner.first.begun or (scanner.first.batch != NULL and scanner.first.batch.table != NULL)
