"""Requests of Python to other nodes; `requests.pyx` explains the design."""

from libc.stdint cimport int64_t


cdef ask_peer(RelayDriver driver, int column, bytes method, bytes params, int64_t timeout_ms)
cdef list take_replies(RelayDriver driver)
cdef WaitReason reply_reason() noexcept nogil
