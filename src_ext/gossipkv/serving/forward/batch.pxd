"""Batches in slices, and with keys that other nodes have; `batch.pyx` explains the design."""

from libc.stdint cimport int64_t

from gossipkv.wire._buffer cimport Buffer
from gossipkv.wire._wire cimport Envelope


cdef Batch* begin_batch(Asking asking, Connection* client, const Envelope* request) noexcept nogil
cdef int queue_batch(Asking asking, Connection* client, Batch* batch) noexcept nogil
cdef int read_batch(Asking asking, Batch* batch, int64_t* work, Buffer* out) noexcept nogil
cdef void ask_disk(Asking asking, Batch* batch, Wait* wait) noexcept nogil
cdef Reason waiting_for_its_parts() noexcept nogil
