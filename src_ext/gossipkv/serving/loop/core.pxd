"""A node's connections and their requests; `core.pyx` explains the design."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from gossipkv.wire._buffer cimport Buffer
from gossipkv.wire._wire cimport Blob, Envelope, FrameLimits, LatencyHistogram

cdef enum:
    MAX_GATHERED = 32  # the size of a window of `get_many`
    INBOX_BYTES = 65536  # One receive holds 1,300 gets, which take a quarter of a millisecond.
    # A receive is limited to this size once the work of the round is done.
    MIN_INBOX_BYTES = 8192
    # At most this work is done before sockets are polled again, in units of some 50 ns: 400 µs.
    WORK_AT_ONCE = 8000
    # A larger batch is read in slices if there is no time for all of it at once.
    SMALL_BATCH_WORK = 1000

cdef struct GatheredGet:
    const uint8_t* message  # first byte of the message
    Envelope request
    Lookup lookup

cdef struct GatheredGets:
    int count
    int table_count  # of these, gets of tables; their lookups have neither file nor version
    TableGet* tables  # at the places of `entries`; NULL before the first get of a table
    GatheredGet entries[MAX_GATHERED]


cdef class Core:
    cdef Connections connections
    cdef Buffer* out  # the buffer of `connections`
    cdef uint64_t* counts  # the counts of `connections`
    cdef RelayDriver driver
    cdef ColdPages cold  # the cold pages of `driver`
    cdef PublishedTable published
    cdef list retired  # tables that are no longer served, but read by scans
    cdef FrameLimits frame_limits  # those for clients
    cdef ReadLimits read_limits
    cdef uint64_t most_ahead_ms  # the most by which the time of expiry may be ahead of the clock

    cdef long thread  # the owning thread of a core without a lock
    cdef readonly CoreLock lock  # the core lock; None if `thread` owns the core
    cdef list resp_databases  # owns the bytes that `resp_names` points to
    cdef Blob* resp_names  # the databases that `SELECT` 1, 2 and so on mean
    cdef int resp_name_count
    cdef Buffer words  # RESP commands rewritten as requests
    cdef GatheredGets gathered  # unanswered plain gets of the connection being processed
    cdef uint32_t hand_off_count  # hand-offs in this step
    cdef Py_ssize_t hand_off_bytes
    cdef int64_t turn_work  # work left in this connection's turn
    cdef Py_ssize_t elements  # elements of the current message
    cdef uint32_t fresh_answers  # answers in `out` that `answered` has not counted
    cdef LatencyHistogram answered
    cdef LatencyHistogram handed_off

    cdef list http_types  # these own the bytes that the HTTP words point to
    cdef bytes http_hosts
    cdef int set_names(self, list names, bytes hosts) except -1
    cdef int keep_types(self, str usual, dict by_database) except -1
    cdef int check_thread(self) except -1
    cdef int release_retired(self) except -1


cdef inline const FrameLimits* limits_of(Core core, const Connection* connection) noexcept nogil:
    """Return the limits of the connection's frames."""
    return &core.driver.frame_limits if connection.node else &core.frame_limits


cdef inline void expire_records(Core core, uint64_t now_ms) noexcept nogil:
    """Set the time by which records expire to the clock's: it never goes back, unless it is too far ahead."""
    core.read_limits.now_ms = min(max(core.read_limits.now_ms, now_ms), now_ms + core.most_ahead_ms)


cdef inline void allow_work(Core core) noexcept nogil:
    """Reset the work budget that ready connections share until sockets are polled again."""
    core.connections.work = WORK_AT_ONCE


cdef inline void begin_step(Core core) noexcept nogil:
    """Begin a step: reset the hand-off counts and the work budget."""
    core.hand_off_count = 0
    core.hand_off_bytes = 0
    allow_work(core)


cdef inline bint has_time(Core core) noexcept nogil:
    """True if the work budget suffices for a small batch, so held input may go on."""
    return core.connections.work >= SMALL_BATCH_WORK


cdef inline Py_ssize_t most_to_receive(Core core) noexcept nogil:
    """Return how much to receive next: a small amount once the work is done, enough for clients that ask for little."""
    return INBOX_BYTES if core.connections.work > 0 else MIN_INBOX_BYTES
