"""What a request may wait for.  The table stands in `_reasons.pyx`."""

from gossipkv.serving._asking cimport Asking


cdef void know_reasons(Asking asking) noexcept nogil
