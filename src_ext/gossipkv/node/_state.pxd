"""One connection: what is known of it, and when its time is up.  The idea stands in `_connection.pyx`."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from gossipkv.node._counters cimport CLOSED_FRAME_TIMEOUT, CLOSED_IDLE, CLOSED_OUTPUT_TIMEOUT
from gossipkv.node._id_set cimport IdSet
from gossipkv.node._scans cimport Scanner
from gossipkv.wire._buffer cimport Buffer
from gossipkv.wire._frames cimport FrameState

cdef enum:
    # How long a connection that has ended may wait for the peer's end: several round trips between continents.
    LINGER_MS = 1000

cdef enum State:
    FREE = 0
    OPEN = 1
    FINISHING = 2  # reads no more; ends when everything received is answered and sent
    LINGERING = 3  # the end was sent; waits for the peer's, so that no reset overtakes the last answer

cdef struct Connection:
    uint64_t handle  # generation << 32 | slot
    uint64_t address  # what its peer counts as, for the limit per address
    int fd
    uint32_t interest  # what epoll watches now
    State state
    int reason  # the counter of why it ends; counted when it is gone
    bint held  # `input` has bytes that were not looked at, because something else must give way first
    bint broken  # nothing more of the input is believed
    bint doomed  # to be closed at once, unsent answers included
    bint runnable
    bint dirty
    bint shut  # its hand-offs are parked until the peer has read
    FrameState scan
    Buffer input  # a frame that has not arrived whole; or what is held
    Buffer output  # what the peer has not taken yet
    IdSet in_flight
    Scanner scanner
    int64_t received_ns  # when bytes last arrived, exactly
    int64_t active_ms  # when bytes last arrived, or a reply, or the peer took some
    int64_t partial_ms  # since when a frame is half-sent; 0: none is
    int64_t blocked_ms  # since when the peer takes nothing; 0: nothing waits

cdef struct TimeLimits:
    int64_t frame_ms
    int64_t output_ms
    int64_t idle_ms  # 0: none


cdef inline int time_is_up(const Connection* connection, const TimeLimits* limits, int64_t now_ms) noexcept nogil:
    """The counter of the reason why a connection must end now; 0 when its time is not up."""
    if connection.state == FREE or connection.doomed:
        return 0
    if connection.state == LINGERING:
        return connection.reason if now_ms - connection.active_ms > LINGER_MS else 0
    if connection.partial_ms > 0 and now_ms - connection.partial_ms > limits.frame_ms:
        return CLOSED_FRAME_TIMEOUT
    if connection.blocked_ms > 0 and now_ms - connection.blocked_ms > limits.output_ms:
        return CLOSED_OUTPUT_TIMEOUT
    if (
        limits.idle_ms > 0
        and connection.in_flight.count == 0
        and connection.blocked_ms == 0
        and now_ms - connection.active_ms > limits.idle_ms
    ):
        return CLOSED_IDLE
    return 0
