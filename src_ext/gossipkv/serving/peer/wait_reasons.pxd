"""The reasons to wait; `wait_reasons.pyx` has the table."""


cdef void set_wait_reasons(RelayDriver driver) noexcept nogil
