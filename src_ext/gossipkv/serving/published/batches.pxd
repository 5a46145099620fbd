"""Reads of many keys from one version; `batches.pyx` explains the design."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from gossipkv.wire._buffer cimport Buffer
from gossipkv.wire._wire cimport Cursor

cdef enum:
    KEY_WORK = 2  # work for a key, in units of some 50 ns, if its data is in memory
    MISSING_VALUE = -1  # the value has not arrived

cdef struct RemoteKey:  # a key that other nodes are asked for
    Py_ssize_t partition
    Py_ssize_t key_at  # offset of the encoded key in the parameters
    Py_ssize_t key_size
    Py_ssize_t slot  # where its value belongs among the local values
    Py_ssize_t at  # offset of its encoded value or nil
    Py_ssize_t size  # MISSING_VALUE until it arrives
    bint damaged  # the local record cannot be read

cdef struct BatchRead:
    VersionRow* version
    const uint8_t* params  # beginning of the parameters
    Cursor keys  # keys that are not read yet
    Py_ssize_t left  # number of unread keys
    Py_ssize_t count  # number of all keys
    Py_ssize_t max_frame  # limit of the answer
    Py_ssize_t room  # limit for the values' end, as an offset in the buffer
    Py_ssize_t partition  # partition of the key at which it stopped
    Py_ssize_t too_long  # size of a value over `max_value`
    uint64_t hits
    uint64_t value_bytes
    bint by_name
    bint may_ask  # other nodes may be asked for missing data
    Py_ssize_t stopped_at  # number of unread keys at the last stop at a missing page
    int stops  # consecutive stops there

cdef struct GetMany:  # a `get_many` read in slices, or with keys that other nodes are asked for
    Relay head
    ClientRelays parts  # relays for the keys that other nodes are asked for
    BatchRead reading
    PyObject* table  # the table it reads from; NULL if it does not read
    Buffer values  # local values as the beginning of an answer, then values of other nodes
    Py_ssize_t here_bytes  # size of the local part
    Buffer places  # a `RemoteKey` for each key that other nodes are asked for
    uint32_t missing  # number of places without an answer
    bint hedged  # keys of some parts went to further owners, and the first owners may still answer


cdef int plan_reading(
    PublishedTable table, Cursor params, const ReadLimits* limits, BatchRead* reading, ReadOptions* options
) noexcept nogil
cdef int begin_reading(BatchRead* reading, uint32_t msgid, Buffer* out) noexcept nogil
cdef int read_keys(
    BatchRead* reading, const ReadLimits* limits, Buffer* out, Buffer* places, int64_t* work
) noexcept nogil
cdef int read_cold(
    BatchRead* reading, const ReadLimits* limits, ColdPages cold, PageWait* wait, PyObject* table
) noexcept nogil
cdef int pass_over(BatchRead* reading, const Buffer* out, Buffer* places) noexcept nogil
cdef int end_reading(const BatchRead* reading, Buffer* out) noexcept nogil
cdef int refuse_reading(const BatchRead* reading, uint32_t msgid, const ReadLimits* limits, Buffer* out) noexcept nogil


cdef inline void count_reading(VersionRow* version, const BatchRead* reading) noexcept nogil:
    """Count a batch of that version with only local keys."""
    count_request(version, reading.by_name)
    version.counts.hits += reading.hits
    version.counts.misses += <uint64_t>reading.count - reading.hits
    version.counts.value_bytes += reading.value_bytes


cdef inline uint32_t remote_key_count(const GetMany* batch) noexcept nogil:
    return <uint32_t>(batch.places.end // <Py_ssize_t>sizeof(RemoteKey))


cdef inline RemoteKey* remote_keys_of(const GetMany* batch) noexcept nogil:
    return <RemoteKey*>batch.places.data
