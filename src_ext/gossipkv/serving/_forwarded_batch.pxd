"""Batches in slices, and with keys that other nodes have.  The idea stands in `_forwarded_batch.pyx`."""

from libc.stdint cimport int64_t

from gossipkv.serving._asking cimport Asking, Reason
from gossipkv.serving._batches cimport Batch
from gossipkv.serving._cold_pages cimport Wait
from gossipkv.serving._connections cimport Connection
from gossipkv.wire._buffer cimport Buffer
from gossipkv.wire._message cimport Envelope


cdef Batch* begin_batch(Asking asking, Connection* client, const Envelope* request) noexcept nogil
cdef int queue_batch(Asking asking, Connection* client, Batch* batch) noexcept nogil
cdef int read_batch(Asking asking, Batch* batch, int64_t* work, Buffer* out) noexcept nogil
cdef void ask_disk(Asking asking, Batch* batch, Wait* wait) noexcept nogil
cdef Reason waiting_for_its_parts() noexcept nogil
