"""A node's connections and what they ask.  The idea stands in `core.pyx`."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from gossipkv.wire._buffer cimport Buffer
from gossipkv.wire._wire cimport Blob, Envelope, FrameLimits, LatencyHistogram

cdef enum:
    GATHERED_MOST = 32  # As in a window of `get_many`.
    INBOX_BYTES = 65536  # One receive: 1,300 gets, which take a quarter of a millisecond.
    # What is received of a connection once the work of this round is done.
    MIN_INBOX_BYTES = 8192
    # Work that is done at once before sockets are looked at again, in units of some 50 ns: 400 µs.
    WORK_AT_ONCE = 8000
    # A batch of more is read in slices if there is not time for all of it at once.
    SMALL_BATCH_WORK = 1000

cdef struct Gathered:
    const uint8_t* message  # its first byte
    Envelope request
    Lookup lookup

cdef struct GatheredGets:
    int count
    Gathered entries[GATHERED_MOST]


cdef class Core:
    cdef Connections connections
    cdef Buffer* out  # that of `connections`
    cdef uint64_t* counts  # those of `connections`
    cdef Asking asking
    cdef ColdPages cold  # those of `asking`
    cdef PublishedTable published
    cdef list retired  # tables that are served no longer, but read by scans
    cdef FrameLimits frame_limits
    cdef ReadLimits read_limits

    cdef long thread  # that owns the core, where it is always the same
    cdef readonly Turn turn  # whose the core is; None: that thread's
    cdef list resp_databases  # what the next has the bytes of
    cdef Blob* resp_names  # of the databases that `SELECT` 1, 2 and so on mean
    cdef int resp_name_count
    cdef Buffer words  # of commands of RESP, and what they are asked as
    cdef GatheredGets gathered  # plain gets of the connection being processed, not answered yet
    cdef uint32_t hand_off_count  # in this step
    cdef Py_ssize_t hand_off_bytes
    cdef int64_t turn_work  # that is left of this connection's turn
    cdef Py_ssize_t elements  # of the message that is looked at
    cdef uint32_t fresh_answers  # in `out`, not yet in `answered`
    cdef LatencyHistogram answered
    cdef LatencyHistogram handed_off

    cdef list http_types  # what the words of HTTP point to
    cdef int know_databases(self, list names) except -1
    cdef int keep_types(self, str usual, dict by_database) except -1
    cdef int check_thread(self) except -1
    cdef int release_retired(self) except -1


cdef inline void allow_work(Core core) noexcept nogil:
    """Let so much be done for those that are ready until sockets are looked at again."""
    core.connections.work = WORK_AT_ONCE


cdef inline void begin_step(Core core) noexcept nogil:
    """Let Python be asked anew."""
    core.hand_off_count = 0
    core.hand_off_bytes = 0
    allow_work(core)


cdef inline bint has_time(Core core) noexcept nogil:
    """Whether what is held may go on: there is time for a small batch at least."""
    return core.connections.work >= SMALL_BATCH_WORK


cdef inline Py_ssize_t most_to_receive(Core core) noexcept nogil:
    """How much may be received from the next one: once the work is done, what somebody with little to ask sends."""
    return INBOX_BYTES if core.connections.work > 0 else MIN_INBOX_BYTES
