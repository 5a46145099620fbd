"""Batches in slices, and with keys that other nodes have; `batch.pyx` explains the design."""

from libc.stdint cimport int64_t

from gossipkv.wire._buffer cimport Buffer
from gossipkv.wire._wire cimport Envelope


cdef GetMany* begin_batch(RelayDriver driver, Connection* client, const Envelope* request) noexcept nogil
cdef int queue_batch(RelayDriver driver, Connection* client, GetMany* batch) noexcept nogil
cdef int read_batch(RelayDriver driver, GetMany* batch, int64_t* work, Buffer* out) noexcept nogil
cdef void ask_disk(RelayDriver driver, GetMany* batch, PageWait* wait) noexcept nogil
cdef WaitReason parts_reason() noexcept nogil
