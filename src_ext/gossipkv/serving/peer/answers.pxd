"""Answers of other nodes; `answers.pyx` explains the design."""

from libc.stdint cimport uint8_t


cdef void receive_answers(RelayDriver driver, Connection* peer, const uint8_t* data, Py_ssize_t size) noexcept nogil
