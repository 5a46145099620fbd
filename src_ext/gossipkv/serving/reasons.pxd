"""The reasons to wait; `reasons.pyx` has the table."""


cdef void know_reasons(Asking asking) noexcept nogil
