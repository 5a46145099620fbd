"""What connections ask, and what becomes of it.  The idea stands in `_requests.pyx`."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from gossipkv.wire._latency cimport LatencyHistogram
from gossipkv.serving._backlog cimport Request
from gossipkv.serving._cold_pages cimport ColdPages
from gossipkv.serving._connections cimport Connection, Connections
from gossipkv.serving._forwarding cimport Forwarding
from gossipkv.serving._published cimport Lookup, PublishedTable, ReadLimits
from gossipkv.serving._scans cimport Scanner
from gossipkv.wire._buffer cimport Buffer
from gossipkv.wire._frames cimport FrameLimits
from gossipkv.wire._message cimport Envelope

cdef enum:
    GATHERED_MOST = 32  # As in a window of `get_many`.
    INBOX_BYTES = 65536  # One receive: 1,300 gets, which take a quarter of a millisecond.

cdef struct Gathered:
    const uint8_t* message  # its first byte
    Envelope request
    Lookup lookup

cdef struct GatheredGets:
    int count
    Gathered entries[GATHERED_MOST]


cdef class Refused:
    cdef readonly bytes error


cdef class Pending:
    cdef readonly uint64_t handle
    cdef readonly uint32_t msgid
    cdef readonly int64_t received_ns
    cdef readonly bytes method
    cdef readonly object waiting


cdef class Core:
    cdef Connections connections
    cdef Buffer* out  # that of `connections`
    cdef uint64_t* counts  # those of `connections`
    cdef Forwarding forwarding
    cdef ColdPages cold  # those of `forwarding`
    cdef PublishedTable published
    cdef list retired  # tables that are served no longer, but read by scans
    cdef FrameLimits frame_limits
    cdef ReadLimits read_limits
    cdef uint32_t max_in_flight_total

    cdef long thread  # that owns the core
    cdef GatheredGets gathered  # plain gets of the connection being processed, not answered yet
    cdef uint32_t hand_off_count  # in this step
    cdef Py_ssize_t hand_off_bytes
    cdef int64_t turn_work  # that is left of this connection's turn
    cdef Py_ssize_t elements  # of the message that is looked at
    cdef uint32_t fresh_answers  # in `out`, not yet in `answered`
    cdef LatencyHistogram answered
    cdef LatencyHistogram handed_off

    cdef int check_thread(self) except -1
    cdef void begin_step(self) noexcept nogil
    cdef void allow_work(self) noexcept nogil
    cdef bint has_time(self) noexcept nogil
    cdef Py_ssize_t most_to_receive(self) noexcept nogil
    cdef int release_retired(self) except -1

    # What has arrived.
    cdef void receive(self, Connection* connection, const uint8_t* data, Py_ssize_t size) noexcept nogil
    cdef void resume(self, Connection* connection) noexcept nogil
    cdef Py_ssize_t consume(self, Connection* connection, const uint8_t* data, Py_ssize_t size) noexcept nogil
    cdef void note_rest(self, Connection* connection, Py_ssize_t consumed) noexcept nogil
    cdef void refuse_frame(
        self, Connection* connection, const uint8_t* data, Py_ssize_t size, int result
    ) noexcept nogil

    # What it asks.
    cdef bint answer_gathered(self, Connection* connection, const uint8_t* data, Py_ssize_t* at) noexcept nogil
    cdef void take_message(
        self, Connection* connection, int kind, const uint8_t* message, const Envelope* envelope
    ) noexcept nogil
    cdef int take_batch(self, Connection* connection, const Envelope* request) noexcept nogil
    cdef int defer_batch(self, Connection* connection, const Envelope* request, bint at_once) noexcept nogil
    cdef void take_request(self, Connection* connection, const Envelope* request) noexcept nogil
    cdef void conclude(self, Connection* connection, const Envelope* request, int outcome) noexcept nogil
    cdef void forward(
        self, Connection* connection, const Envelope* request, const Lookup* lookup, int why
    ) noexcept nogil
    cdef void count_answered(self, const Connection* connection) noexcept nogil

    # What Python answers.
    cdef int may_hand_off(self, const Connection* connection, const Envelope* request) noexcept nogil
    cdef void hand_off(self, Connection* connection, const Envelope* request) noexcept nogil
    cdef Request* next_request(self) noexcept nogil
    cdef void limit_parked(self, Connection* connection) noexcept nogil
    cdef Connection* claim(self, uint64_t handle, uint32_t msgid) noexcept nogil
    cdef void deliver(self, Connection* connection) noexcept nogil
    cdef bint respond(
        self, uint64_t handle, uint32_t msgid, const uint8_t* body, Py_ssize_t size, bint refused
    ) noexcept nogil

    # What is answered in slices.
    cdef void fetch(self, Scanner* scanner) noexcept nogil
    cdef bint run_batch(self, Scanner* scanner, int64_t* work) noexcept nogil
    cdef Connection* run_scans(self, int64_t* work) noexcept nogil
    cdef void end_scan(self, Connection* connection, int outcome) noexcept nogil
