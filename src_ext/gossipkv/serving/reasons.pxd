"""What a request may wait for.  The table stands in `reasons.pyx`."""


cdef void know_reasons(Asking asking) noexcept nogil
