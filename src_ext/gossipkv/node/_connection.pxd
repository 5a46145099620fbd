"""The connection core's structs, for the loop that drives it.  The idea stands in `_connection.pyx`."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from gossipkv.latency._histogram cimport LatencyHistogram
from gossipkv.node._addresses cimport AddressCounts
from gossipkv.node._backlog cimport Backlog
from gossipkv.node._counters cimport COUNTERS
from gossipkv.node._local cimport GatheredGets
from gossipkv.node._published cimport PublishedTable, ReadLimits
from gossipkv.node._scans cimport Scans
from gossipkv.node._slots cimport Slots
from gossipkv.node._state cimport Connection, TimeLimits
from gossipkv.wire._buffer cimport Buffer, buffer_append, buffer_size
from gossipkv.wire._frames cimport FrameLimits
from gossipkv.wire._message cimport Envelope

cdef class Core:
    cdef PublishedTable published
    cdef list retired  # tables that are served no longer, but read by scans
    cdef FrameLimits frame_limits
    cdef ReadLimits read_limits
    cdef Py_ssize_t max_queued
    cdef Py_ssize_t max_held
    cdef uint32_t max_in_flight
    cdef uint32_t max_in_flight_total
    cdef uint32_t max_connections
    cdef uint32_t max_connections_per_address  # 0: no such limit
    cdef TimeLimits time_limits

    cdef long thread  # that owns the core
    cdef int64_t now_ns
    cdef int64_t now_ms  # the same, less exactly
    cdef Slots slots
    cdef uint32_t connection_count
    cdef AddressCounts addresses
    cdef uint32_t in_flight_count
    cdef Py_ssize_t held_bytes  # of all inputs and outputs
    cdef GatheredGets gathered  # plain gets of the connection being processed, not answered yet
    cdef Buffer out  # answers of the connection being processed
    cdef Buffer runnable  # handles of those with held input that may go on
    cdef Buffer dirty  # handles of those with replies to send
    cdef Backlog backlog  # what was handed off
    cdef Scans scans  # what is answered in slices
    cdef uint32_t hand_off_count  # in this step
    cdef Py_ssize_t hand_off_bytes
    cdef uint64_t turn_ends_at_key  # of `KEYS_READ`
    cdef Py_ssize_t elements  # of the message that is looked at
    cdef uint32_t fresh_answers  # in `out`, not yet in `answered`
    cdef LatencyHistogram answered
    cdef LatencyHistogram handed_off
    cdef uint64_t counts[COUNTERS]

    cdef void count(self, int counter, uint64_t amount) noexcept nogil
    cdef Connection* begin(self, int fd, uint64_t address) noexcept nogil
    cdef Connection* find(self, uint64_t handle) noexcept nogil
    cdef void release(self, Connection* connection) noexcept nogil
    cdef void receive_bytes(self, Connection* connection, const uint8_t* data, Py_ssize_t size) noexcept nogil
    cdef void resume(self, Connection* connection) noexcept nogil
    cdef void finish(self, Connection* connection, int reason) noexcept nogil
    cdef void doom(self, Connection* connection, int reason) noexcept nogil
    cdef void hold_output(self, Connection* connection, Py_ssize_t skip) noexcept nogil
    cdef void sent(self, Connection* connection, Py_ssize_t size) noexcept nogil
    cdef bint has_room(self, const Connection* connection) noexcept nogil
    cdef bint may_process(self, const Connection* connection) noexcept nogil
    cdef bint wants_read(self, const Connection* connection) noexcept nogil
    cdef bint is_finished(self, const Connection* connection) noexcept nogil
    cdef void run_later(self, Connection* connection) noexcept nogil
    cdef void flush_later(self, Connection* connection) noexcept nogil
    cdef void set_time(self, int64_t now_ns) noexcept nogil
    cdef void begin_step(self) noexcept nogil
    cdef Py_ssize_t room(self) noexcept nogil
    cdef bint make_room(self, const Connection* asking, Py_ssize_t size) noexcept nogil
    cdef int may_hand_off(self, const Connection* connection, const Envelope* request) noexcept nogil
    cdef void count_answered(self, const Connection* connection) noexcept nogil
    cdef void expire_one(self, Connection* connection) noexcept nogil
    cdef int check_thread(self) except -1

    cdef Py_ssize_t consume(self, Connection* connection, const uint8_t* data, Py_ssize_t size) noexcept nogil
    cdef void settle(self, Connection* connection, Py_ssize_t consumed) noexcept nogil
    cdef void drop_input(self, Connection* connection, Py_ssize_t size) noexcept nogil
    cdef int hold_input(self, Connection* connection, const uint8_t* data, Py_ssize_t size) noexcept nogil
    cdef bint answer_gathered(self, Connection* connection, const uint8_t* data, Py_ssize_t* at) noexcept nogil
    cdef void take_message(self, Connection* connection, int kind, const Envelope* envelope) noexcept nogil
    cdef void conclude(self, Connection* connection, const Envelope* request, int outcome) noexcept nogil
    cdef void take_request(self, Connection* connection, const Envelope* request) noexcept nogil
    cdef void hand_off(self, Connection* connection, const Envelope* request) noexcept nogil
    cdef void refuse_frame(
        self, Connection* connection, const uint8_t* data, Py_ssize_t size, int result
    ) noexcept nogil


cdef inline bint push_handle(Buffer* handles, uint64_t handle) noexcept nogil:
    return buffer_append(handles, <const uint8_t*>&handle, sizeof(uint64_t)) == 0


cdef inline uint64_t pop_handle(Buffer* handles) noexcept nogil:
    cdef uint64_t handle
    memcpy(&handle, handles.data + handles.start, sizeof(uint64_t))
    handles.start += sizeof(uint64_t)
    if handles.start == handles.end:
        handles.start = 0
        handles.end = 0
    return handle


cdef inline Connection* next_runnable(Core core) noexcept nogil:
    """The next connection whose held input may go on; NULL after the last."""
    cdef Connection* connection
    while buffer_size(&core.runnable) > 0:
        connection = core.find(pop_handle(&core.runnable))
        if connection != NULL:
            connection.runnable = False
            if connection.held and not connection.doomed:
                return connection
    return NULL
