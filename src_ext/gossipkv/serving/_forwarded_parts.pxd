"""Parts of batches.  The idea stands in `_forwarded_parts.pyx`."""

from gossipkv.serving._asking cimport Asking, Reason
from gossipkv.serving._batches cimport Batch


cdef int ask_for_rest(Asking asking, Batch* batch) noexcept nogil
cdef Reason waiting_for_an_owner_of_keys() noexcept nogil
