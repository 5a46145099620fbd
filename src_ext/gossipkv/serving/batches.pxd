"""Reads of many keys from one version.  The idea stands in `batches.pyx`."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from gossipkv.wire._buffer cimport Buffer
from gossipkv.wire._wire cimport Cursor

cdef enum:
    KEY_WORK = 2  # of a key, in units of some 50 ns; what it is read from is in memory
    MISSING_VALUE = -1  # not answered yet

cdef struct Place:  # of a key that others are asked for
    Py_ssize_t partition
    Py_ssize_t key_at  # in the parameters, as it came
    Py_ssize_t key_size
    Py_ssize_t slot  # where its value belongs among those that were read here
    Py_ssize_t at  # of its value, or nil, as it is sent
    Py_ssize_t size  # MISSING_VALUE: it is not there
    bint damaged  # it is here, but cannot be read

cdef struct Reading:
    VersionRow* version
    const uint8_t* params  # where they begin
    Cursor keys  # those that are not read yet
    Py_ssize_t left  # so many
    Py_ssize_t count  # of all
    Py_ssize_t max_frame  # of the answer
    Py_ssize_t room  # where the values must end at the latest, counted from the beginning of the buffer
    Py_ssize_t partition  # of the key at which it has stopped
    Py_ssize_t too_long  # the size of a value over `max_value`
    uint64_t hits
    uint64_t value_bytes
    bint by_name
    bint may_ask  # others, for what is not here
    Py_ssize_t stopped_at  # how many keys were left when it last stopped at a cold page
    int stops  # so often there

cdef struct Batch:  # a `get_many` that is read in slices, or for some keys of which others are asked
    Relay head
    ClientRelays parts  # of its keys, those that others are asked for
    Reading reading
    PyObject* table  # what it reads from; NULL: it does not read
    Buffer values  # those that are here, as an answer begins with them; then those that others have given
    Py_ssize_t here_bytes  # of the former
    Buffer places  # of the keys that others are asked for, each a `Place`
    uint32_t missing  # of these, those that are not answered
    bint hedged  # some parts were passed on, and may be answered


cdef int plan_reading(
    PublishedTable table, Cursor params, const ReadLimits* limits, Reading* reading, ReadOptions* options
) noexcept nogil
cdef int begin_reading(Reading* reading, uint32_t msgid, Buffer* out) noexcept nogil
cdef int read_keys(
    Reading* reading, const ReadLimits* limits, Buffer* out, Buffer* places, int64_t* work
) noexcept nogil
cdef int read_cold(
    Reading* reading, const ReadLimits* limits, ColdPages cold, Wait* wait, PyObject* table
) noexcept nogil
cdef int pass_over(Reading* reading, const Buffer* out, Buffer* places) noexcept nogil
cdef int end_reading(const Reading* reading, Buffer* out) noexcept nogil
cdef int refuse_reading(const Reading* reading, uint32_t msgid, const ReadLimits* limits, Buffer* out) noexcept nogil


cdef inline void count_reading(VersionRow* version, const Reading* reading) noexcept nogil:
    """Count a batch of that version, all of which was here."""
    count_request(version, reading.by_name)
    version.counts.hits += reading.hits
    version.counts.misses += <uint64_t>reading.count - reading.hits
    version.counts.value_bytes += reading.value_bytes


cdef inline uint32_t place_count(const Batch* batch) noexcept nogil:
    return <uint32_t>(batch.places.end // <Py_ssize_t>sizeof(Place))


cdef inline Place* places_of(const Batch* batch) noexcept nogil:
    return <Place*>batch.places.data
