"""TLS by the OpenSSL of the system.  The idea stands in `_tls.pyx`."""

from libc.stdint cimport int64_t, uint8_t, uint32_t


cdef class Tls:
    cdef void* context  # OpenSSL's: SSL_CTX*
    cdef uint32_t listeners  # a bit for each at which it is spoken
    cdef void* peers  # OpenSSL's X509_STORE*: who signs certificates of nodes; NULL: nobody
    cdef void* clients  # likewise, of users
    cdef readonly bytes uuid
    cdef readonly int64_t expires_s

    cdef int use(self, certificate, key) except -1
    cdef int ask(self, dict authorities) except -1
    cdef void* begin(self, int fd) noexcept nogil
    cdef object proven(self, const void* tls)
    cdef object named(self, const void* tls)


cdef class TlsEnd:
    cdef Tls context
    cdef void* tls  # NULL: a transport has it
    cdef void* came  # OpenSSL's BIO*, both of `tls`
    cdef void* goes
    cdef int fd

    cdef void* take(self) noexcept nogil
    cdef int fail(self) except -1


# Of one connection: OpenSSL's SSL*.
cdef int tls_shake(void* tls) noexcept nogil
cdef ssize_t tls_receive(void* tls, uint8_t* data, Py_ssize_t size, bint* holds) noexcept nogil
cdef ssize_t tls_peek(void* tls, uint8_t* data, Py_ssize_t size) noexcept nogil
cdef ssize_t tls_send(void* tls, const uint8_t* data, Py_ssize_t size) noexcept nogil
cdef bint tls_holds(void* tls) noexcept nogil
cdef bint tls_resumed(void* tls) noexcept nogil
cdef bint tls_certified(void* tls) noexcept nogil
cdef void tls_end(void* tls) noexcept nogil
cdef void tls_free(void* tls) noexcept nogil
