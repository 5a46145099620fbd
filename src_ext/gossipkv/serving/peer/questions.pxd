"""Requests of Python to other nodes; `questions.pyx` explains the design."""

from libc.stdint cimport int64_t


cdef ask_peer(Asking asking, int column, bytes method, bytes params, int64_t timeout_ms)
cdef list take_replies(Asking asking)
cdef Reason waiting_for_a_reply() noexcept nogil
