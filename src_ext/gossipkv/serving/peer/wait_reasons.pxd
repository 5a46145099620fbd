"""The reasons to wait; `wait_reasons.pyx` has the table."""


cdef void know_reasons(Asking asking) noexcept nogil
