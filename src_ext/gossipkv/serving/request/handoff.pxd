"""Hand-offs to Python; `handoff.pyx` explains the design."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from gossipkv.wire._wire cimport Envelope


cdef class Refusal:
    cdef readonly bytes error
    cdef readonly bint ends


cdef class ProvenResult:
    cdef readonly uint32_t user
    cdef readonly bytes body


cdef class Caller:
    cdef readonly uint64_t handle
    cdef readonly int pump
    cdef readonly uint32_t user
    cdef readonly uint64_t address


cdef class PendingRequest:
    cdef readonly uint64_t handle
    cdef readonly uint32_t msgid
    cdef readonly int64_t received_ns
    cdef readonly bytes method
    cdef readonly object waiting


cdef int may_hand_off(Core core, const Connection* connection, const Envelope* request) noexcept nogil
cdef void hand_off(Core core, Connection* connection, const Envelope* request) noexcept nogil
cdef BacklogRequest* next_request(Core core) noexcept nogil
cdef void limit_parked(Core core, Connection* connection) noexcept nogil
cdef void answer_pending(
    Core core, uint64_t handle, uint32_t msgid, int64_t received_ns, BacklogKind kind, const uint8_t* body,
    Py_ssize_t size
) noexcept nogil
cdef Connection* claim_answered(Core core, uint64_t handle, uint32_t msgid) noexcept nogil
cdef void deliver(Core core, Connection* connection) noexcept nogil
cdef Caller caller_of(Core core, uint64_t handle)
cdef bytes body_of(object answer)
cdef bint respond(
    Core core, uint64_t handle, uint32_t msgid, const uint8_t* body, Py_ssize_t size, bint refused
) noexcept nogil
