"""Scans under way: what each connection asked, and whose turn it is.  The idea stands in `_scans.pyx`."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint32_t, uint64_t

from gossipkv.node._published cimport PublishedTable, ReadLimits
from gossipkv.node._scan_page cimport Page
from gossipkv.node._scan_plan cimport Plan
from gossipkv.wire._buffer cimport Buffer
from gossipkv.wire._message cimport Envelope

cdef enum:
    # Work of one slice, in units of some 50 ns: about 100 µs when the data is in memory.
    SLICE_WORK = 2000
    # Of each request, however little it asks for.
    REQUEST_WORK = 4
    # Beside `Outcome`: the answer comes in a later slice.
    UNDER_WAY = 3

cdef enum ScannerPlace:
    NOWHERE = 0  # has asked for nothing that is not answered
    RUNNING = 1
    WAITING = 2
    PARKED = 3  # the peer does not read

cdef struct Job:
    Job* next  # of the same connection
    uint32_t msgid
    int64_t received_ns
    bint begun
    Buffer params  # as they came, once the request has left the receive buffer
    Buffer bounds  # keys that the plan made out of those that were given
    Plan plan
    PyObject* table  # what it reads from
    Page page
    Py_ssize_t held

cdef struct Scanner:
    Scanner* next
    Scanner* previous
    uint64_t handle  # of the connection
    ScannerPlace place
    Py_ssize_t held_bytes
    Job* first
    Job* last

cdef struct Line:
    Scanner* first
    Scanner* last
    uint32_t count

cdef struct Scans:
    ReadLimits limits
    Py_ssize_t scan_limit
    Line running
    Line waiting
    Job* spare  # the memory of one that has ended
    int64_t at_once  # work that may still be done in this step for requests that have just come
    Py_ssize_t held_bytes
    uint64_t answered
    uint64_t slices
    uint64_t records
    uint64_t searches


cdef list release_unread(list tables)
cdef dict scans_counters(const Scans* scans)
cdef void scans_release(Scans* scans) noexcept nogil
cdef void scans_new_step(Scans* scans) noexcept nogil
cdef int scans_ask(
    Scans* scans, Scanner* scanner, PublishedTable table, const Envelope* request, int64_t received_ns, bint may_wait,
    Buffer* out,
) noexcept nogil
cdef Scanner* scans_turn(Scans* scans) noexcept nogil
cdef int scans_run(Scans* scans, Scanner* scanner, PublishedTable table, int64_t* work, Buffer* out) noexcept nogil
cdef void scans_done(Scans* scans, Scanner* scanner) noexcept nogil
cdef void scans_park(Scans* scans, Scanner* scanner) noexcept nogil
cdef void scans_unpark(Scans* scans, Scanner* scanner) noexcept nogil
cdef void scans_drop(Scans* scans, Scanner* scanner) noexcept nogil


cdef inline bint scans_have_turn(const Scans* scans) noexcept nogil:
    return scans.running.count > 0 or scans.waiting.count > 0
