"""Parts of batches; `parts.pyx` explains the design."""


cdef int ask_for_rest(Asking asking, Batch* batch) noexcept nogil
cdef Reason waiting_for_an_owner_of_keys() noexcept nogil
