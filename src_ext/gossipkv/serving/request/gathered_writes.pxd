"""Plain writes of tables, gathered by replica; `gathered_writes.pyx` explains the design."""

from libc.stdint cimport int64_t, uint64_t

from gossipkv.replication._replication cimport CalmReplica, CalmTable
from gossipkv.wire._buffer cimport Buffer
from gossipkv.wire._wire cimport Blob

cdef enum WriteKind:
    PUT_ONE = 0  # `put`
    DELETE_ONE = 1  # `delete`
    PUT_MANY = 2  # `put_many`

cdef struct WriteOptions:
    Blob token  # of size 0 if none is given
    uint64_t config  # 0 if it is not given
    uint64_t timeout_ms
    uint64_t seen_config  # that of the token
    int level  # the place of the name in `LEVELS`
    int64_t expiry  # as in `RecordWrite`
    bint takes_expiry

cdef struct GatheredWrite:
    BacklogRequest* request  # owned; NULL once it is answered
    WriteOptions options  # the token lies in the request
    double deadline
    Py_ssize_t rows  # the number of rows of the replica up to the last one of this write


cdef class GatheredWrites:
    cdef Core core
    cdef object wake  # starts a round
    cdef CalmTable table
    cdef CalmReplica calm
    cdef readonly object replica
    cdef readonly list writes
    cdef readonly Py_ssize_t size_bytes
    cdef readonly Py_ssize_t waiting  # the number of writes that are not answered
    cdef readonly bint has_begun
    cdef uint64_t config
    cdef uint64_t assignment
    cdef uint64_t before  # the counter before the first row
    cdef GatheredWrite* items
    cdef Py_ssize_t count
    cdef Py_ssize_t room
    cdef Buffer words

    cdef int add(self, BacklogRequest* request, const WriteOptions* options, list written) except -1
    cdef int answer(self, Py_ssize_t number, Refusal refusal) except -1
    cdef int answer_all(self, int level, double until, Refusal refusal) except -1
    cdef int write_seen(self, Py_ssize_t number) except -1
