"""TLS through the system's OpenSSL; `openssl.pyx` explains the design."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.time cimport tm

ctypedef int (*AskPassphrase)(char* buffer, int size, int writes, void* asked) noexcept nogil
ctypedef void (*FreeSigners)(void* context, void* signers, void* data, int index, long, void*) noexcept nogil
ctypedef int (*NoteVerdict)(void* tls, void* signers) noexcept nogil
ctypedef int (*JudgeTicket)(void* tls, void* session, const uint8_t*, size_t, int status, void*) noexcept nogil

cdef struct Signers:  # OpenSSL's X509_STORE*: signing authorities; NULL for none
    void* peers  # authorities for nodes
    void* clients  # authorities for users

cdef struct OpensslFunctions:
    # The functions used of OpenSSL, in the order of `NAMES`.
    unsigned long (*version)() noexcept nogil
    void (*clear_errors)() noexcept nogil
    unsigned long (*last_error)() noexcept nogil
    const char* (*reason_of)(unsigned long) noexcept nogil
    const void* (*not_after)(const void*) noexcept nogil
    int (*to_tm)(const void*, tm*) noexcept nogil
    const void* (*method)() noexcept nogil
    void* (*context_new)(const void*) noexcept nogil
    void (*context_free)(void*) noexcept nogil
    long (*context_control)(void*, int, long, void*) noexcept nogil
    uint64_t (*set_options)(void*, uint64_t) noexcept nogil
    int (*set_ciphers)(void*, const char*) noexcept nogil
    int (*set_tickets)(void*, size_t) noexcept nogil
    int (*set_id_context)(void*, const uint8_t*, unsigned int) noexcept nogil
    void (*set_passphrase_callback)(void*, AskPassphrase) noexcept nogil
    void (*set_passphrase_data)(void*, void*) noexcept nogil
    int (*use_key)(void*, const char*, int) noexcept nogil
    int (*use_chain)(void*, const char*) noexcept nogil
    int (*check_key)(const void*) noexcept nogil
    const void* (*certificate)(const void*) noexcept nogil
    int (*trust)(void*, const char*) noexcept nogil
    int (*trust_usual)(void*) noexcept nogil
    void* (*read_names)(const char*) noexcept nogil
    int (*add_names)(void*, const char*) noexcept nogil
    void (*tell_names)(void*, void*) noexcept nogil
    void (*set_verify)(void*, int, void*) noexcept nogil
    void* (*new)(void*) noexcept nogil
    void (*free)(void*) noexcept nogil
    int (*set_fd)(void*, int) noexcept nogil
    void (*set_accepting)(void*) noexcept nogil
    void (*set_dialling)(void*) noexcept nogil
    int (*set_host)(void*, const char*) noexcept nogil
    long (*control)(void*, int, long, const void*) noexcept nogil
    int (*shake)(void*) noexcept nogil
    int (*read)(void*, void*, int) noexcept nogil
    int (*peek)(void*, void*, int) noexcept nogil
    int (*write)(void*, const void*, int) noexcept nogil
    int (*shut)(void*) noexcept nogil
    int (*why)(const void*, int) noexcept nogil
    int (*holds)(const void*) noexcept nogil
    int (*resumed)(const void*) noexcept nogil
    const void* (*memory)() noexcept nogil
    void* (*bio_new)(const void*) noexcept nogil
    int (*bio_read)(void*, void*, int) noexcept nogil
    int (*bio_write)(void*, const void*, int) noexcept nogil
    void (*set_bio)(void*, void*, void*) noexcept nogil
    void* (*store_new)() noexcept nogil
    void (*store_free)(void*) noexcept nogil
    int (*store_load)(void*, const char*) noexcept nogil
    void* (*verdict_new)() noexcept nogil
    void (*verdict_free)(void*) noexcept nogil
    int (*verdict_begin)(void*, void*, const void*, const void*) noexcept nogil
    int (*is_signed)(void*) noexcept nogil
    long (*verdict)(const void*) noexcept nogil
    const char* (*verdict_reason)(long) noexcept nogil
    const void* (*shown)(const void*) noexcept nogil
    const void* (*shown_chain)(const void*) noexcept nogil
    void* (*extension)(const void*, int, int*, int*) noexcept nogil
    int (*name_count)(const void*) noexcept nogil
    const void* (*name_at)(const void*, int) noexcept nogil
    const void* (*name_value)(const void*, int*) noexcept nogil
    void (*names_free)(void*) noexcept nogil
    const uint8_t* (*text_data)(const void*) noexcept nogil
    int (*text_size)(const void*) noexcept nogil
    const void* (*subject)(const void*) noexcept nogil
    int (*find_entry)(const void*, int, int) noexcept nogil
    const void* (*entry_at)(const void*, int) noexcept nogil
    const void* (*entry_value)(const void*) noexcept nogil
    int (*new_index)(int, long, void*, void*, void*, FreeSigners) noexcept nogil
    int (*set_data)(void*, int, void*) noexcept nogil
    int (*set_ticket_callbacks)(void*, NoteVerdict, JudgeTicket, void*) noexcept nogil
    void* (*session)(const void*) noexcept nogil
    int (*set_note)(void*, const void*, size_t) noexcept nogil
    int (*note)(void*, void**, size_t*) noexcept nogil
    int (*compare_to_now)(const void*) noexcept nogil


cdef class Tls:
    cdef void* context  # OpenSSL's SSL_CTX*
    cdef uint32_t listeners  # a bit for each listener that uses TLS
    cdef Signers* signers  # owned by the context, which lives as long as its connections
    cdef readonly bytes uuid
    cdef readonly tuple names
    cdef readonly int64_t expires_s

    cdef int use(self, certificate, key) except -1
    cdef int ask(self, dict authorities) except -1
    cdef void* begin(self, int fd) noexcept nogil
    cdef object proven(self, const void* tls)
    cdef object named(self, const void* tls)


cdef class TlsClient:
    cdef void* context  # OpenSSL's SSL_CTX*
    cdef bytes host
    cdef const char* host_text
    cdef bint is_name  # a name rather than an address

    cdef void* dial(self, int fd) noexcept nogil


cdef class TlsEnd:
    cdef Tls context
    cdef void* tls  # NULL once a transport has it
    cdef void* came  # OpenSSL's BIO*, both owned by `tls`
    cdef void* goes
    cdef int fd

    cdef void* take(self) noexcept nogil
    cdef int fail(self) except -1


# These functions take a connection, OpenSSL's SSL*.
cdef int tls_shake(void* tls) noexcept nogil
cdef ssize_t tls_receive(void* tls, uint8_t* data, Py_ssize_t size, bint* holds) noexcept nogil
cdef ssize_t tls_peek(void* tls, uint8_t* data, Py_ssize_t size) noexcept nogil
cdef ssize_t tls_send(void* tls, const uint8_t* data, Py_ssize_t size) noexcept nogil
cdef bint tls_holds(void* tls) noexcept nogil
cdef bint tls_resumed(void* tls) noexcept nogil
cdef bint tls_certified(void* tls) noexcept nogil
cdef void tls_end(void* tls) noexcept nogil
cdef void tls_free(void* tls) noexcept nogil
