"""What other nodes answer.  The idea stands in `_peer_answers.pyx`."""

from libc.stdint cimport uint8_t

from gossipkv.serving._asking cimport Asking
from gossipkv.serving._connections cimport Connection


cdef void receive_answers(Asking asking, Connection* peer, const uint8_t* data, Py_ssize_t size) noexcept nogil
