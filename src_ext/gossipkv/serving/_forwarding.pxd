"""Reads that other nodes answer.  The idea stands in `_forwarding.pyx`."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from gossipkv.wire._latency cimport LatencyHistogram
from gossipkv.serving._batches cimport Place
from gossipkv.serving._cold_pages cimport ColdPages, Wait
from gossipkv.serving._connections cimport Connection, Connections
from gossipkv.serving._peers cimport Peers
from gossipkv.serving._published cimport DatabaseRow, Lookup, PublishedTable, ReadLimits, VersionRow
from gossipkv.serving._read_options cimport ReadOptions
from gossipkv.serving._relays cimport Relay, RelayKind, Relays, Tried
from gossipkv.wire._buffer cimport Buffer
from gossipkv.wire._frames cimport FrameLimits
from gossipkv.wire._message cimport Blob, Cursor, Envelope


cdef class Forwarding:
    cdef Connections connections
    cdef Relays* relays  # those of `connections`
    cdef uint64_t* counts  # the same
    cdef Peers peers
    cdef ColdPages cold
    cdef PublishedTable published
    cdef FrameLimits frame_limits
    cdef ReadLimits read_limits
    cdef int64_t whole_ns
    cdef int64_t stage_ns
    cdef LatencyHistogram answered
    cdef LatencyHistogram answered_here  # of what was here after all
    cdef bytes name
    cdef Blob own_name  # the same, for who asks which node has answered

    # A client's read.
    cdef int begin(self, Connection* client, const Envelope* request, const Lookup* lookup) noexcept nogil
    cdef int begin_cold(self, Connection* client, const Envelope* request, const Lookup* lookup) noexcept nogil
    cdef Relay* begin_get(self, Connection* client, const Envelope* request, RelayKind kind) noexcept nogil
    cdef void go_elsewhere(self, Relay* relay, const Lookup* lookup) noexcept nogil
    cdef void wait_for(self, Relay* relay, PyObject* file) noexcept nogil
    cdef bint is_patient(self, const Relay* relay) noexcept nogil
    cdef void look_up_again(self, Relay* relay) noexcept nogil
    cdef void refuse_slow(self, Relay* relay) noexcept nogil
    cdef bint may_divert(self, Cursor params, const Lookup* lookup) noexcept nogil
    cdef void note_damage(self, const Relay* relay, const Place* place) noexcept nogil
    cdef void set_limits(self, Relay* relay, const ReadOptions* options) noexcept nogil
    cdef int remember(self, Relay* relay, const Cursor* params) noexcept nogil
    cdef int set_version(self, Relay* relay, const Lookup* lookup) noexcept nogil
    cdef void go_on(self) noexcept nogil
    cdef void ask_next(self, Relay* relay) noexcept nogil
    cdef int next_to_ask(self, Relay* relay, Py_ssize_t partition) noexcept nogil
    cdef void note_full(self, Relay* relay, int column) noexcept nogil
    cdef void rest(self, Relay* relay) noexcept nogil
    cdef bint send(self, Relay* relay, int column) noexcept nogil
    cdef void begin_round(self, Relay* relay) noexcept nogil
    cdef Relay* begin_batch(self, Connection* client, const Envelope* request) noexcept nogil
    cdef int queue_batch(self, Connection* client, Relay* batch) noexcept nogil
    cdef void forget_read(self, Relay* batch) noexcept nogil
    cdef void ask_disk(self, Relay* batch, Wait* wait) noexcept nogil
    cdef int read_batch(self, Relay* batch, int64_t* work, Buffer* out) noexcept nogil
    cdef int open_batch(self, Relay* batch) noexcept nogil
    cdef int read_on(self, Relay* batch, int64_t* work) noexcept nogil
    cdef void count_asking(self, Relay* batch) noexcept nogil
    cdef void refuse_batch(self, Relay* batch, Buffer* out) noexcept nogil
    cdef void give(self, Relay* batch, Buffer* answer, Buffer* out) noexcept nogil
    cdef void fail(self, uint64_t handle) noexcept nogil
    cdef int ask_for_rest(self, Relay* batch) noexcept nogil
    cdef Relay* begin_part(self, Relay* before) noexcept nogil
    cdef void pass_on(self, Relay* part) noexcept nogil
    cdef int divide(self, Relay* part) noexcept nogil
    cdef void begin_part_round(self, Relay* part) noexcept nogil
    cdef void read_again(self, Relay* batch) noexcept nogil
    cdef void take_values(self, Relay* part, Cursor result) noexcept nogil
    cdef void answer_batch(self, Relay* batch, Buffer* out) noexcept nogil
    cdef int put_values(self, Relay* batch, Buffer* out) noexcept nogil
    cdef bint answer_here(self, Relay* relay, Lookup* lookup) noexcept nogil
    cdef Connection* claim(self, const Relay* relay) noexcept nogil
    cdef void answer(self, Relay* relay, const Cursor* said, bint refused, int column) noexcept nogil
    cdef void put_explained(self, Buffer* out, Relay* relay, Cursor result, const Blob* node) noexcept nogil
    cdef DatabaseRow* database_of(self, const Relay* relay) noexcept nogil
    cdef void count_value(self, const Relay* relay, Cursor result, bint refused) noexcept nogil
    cdef void count_read(self, const Relay* batch, bint refused) noexcept nogil
    cdef void count_values(self, const Relay* batch, bint refused) noexcept nogil
    cdef void hand_back(self, Relay* relay) noexcept nogil
    cdef void give_up(self, Relay* relay) noexcept nogil
    cdef int write_report(self, const Relay* relay, Buffer* out) noexcept nogil
    cdef void put_outcome(self, Buffer* out, int column, Tried outcome) noexcept nogil

    # Time.
    cdef void expire(self) noexcept nogil
    cdef void expire_one(self, Relay* relay) noexcept nogil
    cdef bint is_under_way(self, const Relay* relay) noexcept nogil
    cdef bint has_begun(self, const Relay* relay) noexcept nogil

    # What peers answer.
    cdef void receive(self, Connection* peer, const uint8_t* data, Py_ssize_t size) noexcept nogil
    cdef Py_ssize_t consume(self, Connection* peer, const uint8_t* data, Py_ssize_t size) noexcept nogil
    cdef void take_answer(self, Connection* peer, const uint8_t* data, Py_ssize_t size) noexcept nogil
    cdef void take_error(self, Connection* peer, Relay* relay, const Blob* code, const Cursor* error) noexcept nogil
