"""What other nodes answer.  The idea stands in `peer_answers.pyx`."""

from libc.stdint cimport uint8_t


cdef void receive_answers(Asking asking, Connection* peer, const uint8_t* data, Py_ssize_t size) noexcept nogil
