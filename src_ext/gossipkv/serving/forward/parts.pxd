"""Parts of batches; `parts.pyx` explains the design."""


cdef int ask_for_rest(RelayDriver driver, GetMany* batch) noexcept nogil
cdef WaitReason key_owner_reason() noexcept nogil
