"""Requests that the core answers by itself, apart from how many it takes: `get`, gathered, and `ping`."""

from libc.stdint cimport uint8_t, uint64_t

from gossipkv.node._counters cimport GETS, KEYS_READ, PINGS
from gossipkv.node._published cimport (
    ANSWERED, HAND_OFF, OUT_OF_MEMORY, Lookup, PublishedTable, ReadLimits,
)
from gossipkv.wire._buffer cimport Buffer, buffer_reserve
from gossipkv.wire._message cimport HEAD_BYTES, Envelope, blob_is, put_answer, put_text

cdef enum:
    GATHERED_MOST = 32  # As in a window of `get_many`.

cdef struct Gathered:
    const uint8_t* message  # its first byte
    Envelope request
    Lookup lookup

cdef struct GatheredGets:
    int count
    Gathered entries[GATHERED_MOST]


cdef inline bint gather_get(
    GatheredGets* gathered, PublishedTable published, const ReadLimits* limits, const uint8_t* message,
    const Envelope* request
) noexcept nogil:
    """Whether this is a plain get, to be answered with others; its bucket is on its way then."""
    cdef Gathered* entry = &gathered.entries[gathered.count]
    if not blob_is(&request.method, b"get", 3) or not published.begin_get(request.params, limits, &entry.lookup):
        return False
    entry.message = message
    entry.request = request[0]
    gathered.count += 1
    return True


cdef inline void prefetch_gathered(GatheredGets* gathered, PublishedTable published, int count) noexcept nogil:
    """Have all records fetched; their buckets were asked for when they were gathered."""
    cdef int i
    for i in range(count):
        published.fetch_record(&gathered.entries[i].lookup)
    for i in range(count):
        published.fetch_value(&gathered.entries[i].lookup)


cdef inline int end_get(
    Gathered* entry, PublishedTable published, const ReadLimits* limits, Buffer* out, uint64_t* counts
) noexcept nogil:
    """Answer a get whose record is on its way."""
    cdef int outcome = published.end_get(&entry.lookup, entry.request.msgid, limits, out)
    if outcome > 0:
        counts[GETS] += 1
        counts[KEYS_READ] += 1
    return outcome


cdef inline int answer_ping(const Envelope* request, Buffer* out, uint64_t* counts) noexcept nogil:
    """`pong`, when it is asked without parameters."""
    if request.params.at[0] != 0x90:
        return HAND_OFF
    if buffer_reserve(out, 3 * HEAD_BYTES) < 0:
        return OUT_OF_MEMORY
    put_answer(out, request.msgid)
    put_text(out, b"pong")
    counts[PINGS] += 1
    return ANSWERED
