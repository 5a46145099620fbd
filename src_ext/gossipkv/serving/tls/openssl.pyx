"""TLS through the system's OpenSSL, loaded when a certificate is first read: a build needs no headers.

A `Tls` is an immutable context: certificate, key, authorities for clients, ticket keys. Reloaded files make a new
context, and connections keep theirs. Serving loops share a context, as OpenSSL allows. Permitted are TLS 1.3 and 1.2
with forward-secret ciphers; compression, renegotiation and early data are off. Tickets are sealed with keys that
OpenSSL draws per context, and no session is kept here. A ticket has the client's certificate without its chain, so the
ticket also notes which authority signed the certificate.

OpenSSL writes to sockets without MSG_NOSIGNAL, so SIGPIPE must be ignored, as Python does. OpenSSL keeps errors per
thread and mistakes a left-over error for its own, so each call below starts by clearing them. A node is identified by
the uuid in a name `urn:uuid:...` of its certificate, else by the DNS names, if a node authority signed it. The library
is opened for this module alone and never closed; Python's `ssl` may use the same library or another.
"""

cimport cython
from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset
from libc.time cimport time_t, tm

from gossipkv.environment import small_file
from gossipkv.errors import ConfigError, LocalError, ProtocolError, Unauthorized

cdef extern from "<dlfcn.h>":
    enum: RTLD_NOW
    enum: RTLD_LOCAL
    void* dlopen(const char* name, int flags)
    void* dlsym(void* library, const char* name)
    const char* dlerror()

cdef extern from "<time.h>":
    time_t timegm(tm* time)

NAMES = """
    OpenSSL_version_num ERR_clear_error ERR_peek_last_error ERR_reason_error_string X509_get0_notAfter ASN1_TIME_to_tm
    TLS_method SSL_CTX_new SSL_CTX_free SSL_CTX_ctrl SSL_CTX_set_options SSL_CTX_set_cipher_list
    SSL_CTX_set_num_tickets SSL_CTX_set_session_id_context SSL_CTX_set_default_passwd_cb
    SSL_CTX_set_default_passwd_cb_userdata SSL_CTX_use_PrivateKey_file SSL_CTX_use_certificate_chain_file
    SSL_CTX_check_private_key SSL_CTX_get0_certificate SSL_CTX_load_verify_file SSL_CTX_set_default_verify_paths
    SSL_load_client_CA_file SSL_add_file_cert_subjects_to_stack SSL_CTX_set_client_CA_list SSL_CTX_set_verify
    SSL_new SSL_free SSL_set_fd SSL_set_accept_state SSL_set_connect_state SSL_set1_host SSL_ctrl SSL_do_handshake
    SSL_read SSL_peek SSL_write SSL_shutdown SSL_get_error SSL_has_pending SSL_session_reused
    BIO_s_mem BIO_new BIO_read BIO_write SSL_set_bio X509_STORE_new X509_STORE_free X509_STORE_load_file
    X509_STORE_CTX_new X509_STORE_CTX_free X509_STORE_CTX_init X509_verify_cert SSL_get_verify_result
    X509_verify_cert_error_string SSL_get0_peer_certificate SSL_get_peer_cert_chain X509_get_ext_d2i OPENSSL_sk_num
    OPENSSL_sk_value GENERAL_NAME_get0_value GENERAL_NAMES_free ASN1_STRING_get0_data ASN1_STRING_length
    X509_get_subject_name X509_NAME_get_index_by_NID X509_NAME_get_entry X509_NAME_ENTRY_get_data
    CRYPTO_get_ex_new_index SSL_CTX_set_ex_data SSL_CTX_set_session_ticket_cb SSL_get_session
    SSL_SESSION_set1_ticket_appdata SSL_SESSION_get0_ticket_appdata X509_cmp_current_time
""".split()

cdef enum:  # OpenSSL's own numbers, the same in every 3.x.
    MIN_VERSION = 0x30000000
    OP_IGNORE_UNEXPECTED_EOF = 1 << 7  # Requests state their length, so an unannounced end is harmless.
    OP_NO_COMPRESSION = 1 << 17
    OP_NO_RENEGOTIATION = 1 << 30
    CONTROL_MODE = 33
    CONTROL_NAME = 55  # host name for SNI
    CONTROL_READ_AHEAD = 41
    CONTROL_CACHE_MODE = 44
    CONTROL_BUILD_CHAIN = 105
    CONTROL_MIN_PROTOCOL = 123
    # Partial writes are allowed, the rest may have moved by then, and idle connections release their buffers.
    MODES = 0x1 | 0x2 | 0x10
    CACHE_OFF = 0
    # The chain is sent in order, whatever the file's order, without the root; clients must know missing parts.
    CHAIN_FLAGS = 0x1 | 0x2 | 0x8 | 0x10
    TLS_1_2 = 0x0303
    FILE_PEM = 1
    VERIFY_PEER = 1
    WHY_WANTS_READ = 2
    WHY_WANTS_WRITE = 3
    WHY_ENDED = 6
    TICKETS = 1  # Tickets per TLS 1.3 client; the usual two, for browsers, take twice the time.
    MAX_AT_ONCE = 1 << 30
    NAMES_EXTENSION = 85  # NID_subject_alt_name
    NAME_DNS = 2
    NAME_URI = 6
    COMMON_NAME = 13
    REASON_BITS = 0x7FFFFF  # The reason part of an error code.
    # Alerts of the other side are 1000 and their number; the first to the last concern this node's certificate.
    BAD_CERTIFICATE_ALERT = 1042
    UNKNOWN_AUTHORITY_ALERT = 1048
    PROTOCOL_VERSION_ALERT = 1070  # A node sends it if it does not use TLS.
    NO_CERTIFICATE_ALERT = 1116
    NOT_TLS = 267  # The received bytes are not a TLS record.
    OUTPUT_BYTES = 4096
    MAX_PEM_BYTES = 4 << 20
    OF_CONTEXTS = 1  # Index class of data attached to contexts.
    # The status of a received ticket, and the decisions on it.
    TICKET_READ = 5
    TICKET_READ_AND_OLD = 6
    RENEW_TICKET = 2
    USE_TICKET = 3
    USE_AND_RENEW_TICKET = 4
    # A ticket's note says which authorities signed the certificate, since the ticket lacks the chain.
    SIGNED_BY_PEERS = 1
    SIGNED_BY_CLIENTS = 2

cdef OpensslFunctions openssl
cdef bint is_open = False
cdef int signers_index = -1


cdef int ask_nobody(char* buffer, int size, int writes, void* asked) noexcept nogil:
    """Note that a key needs a passphrase, instead of asking at the terminal."""
    (<bint*>asked)[0] = True
    return 0


cdef int open_library() except -1:
    """Load OpenSSL. Raises: LocalError if it is missing or too old."""
    global is_open, signers_index
    cdef void* libraries[2]
    cdef void* found
    cdef int i
    cdef int at
    if is_open:
        return 0
    for i, name in enumerate((b"libssl.so.3", b"libcrypto.so.3")):
        libraries[i] = dlopen(name, RTLD_NOW | RTLD_LOCAL)
        if libraries[i] == NULL:
            raise no_library((<bytes>dlerror()).decode(errors="replace"))
    for at, function in enumerate(NAMES):
        found = NULL
        for i in range(2):
            found = dlsym(libraries[i], function.encode()) if found == NULL else found
        if found == NULL:
            raise no_library(f"the library has no function {function}")
        (<void**>&openssl)[at] = found
    if openssl.version() < MIN_VERSION:
        raise no_library(f"the version of the library is {openssl.version():#x}")
    signers_index = openssl.new_index(OF_CONTEXTS, 0, NULL, NULL, NULL, free_signers)
    if signers_index < 0:
        raise MemoryError
    is_open = True
    return 0


cdef object no_library(str reason):
    return LocalError(
        f"tls_certificate: TLS needs OpenSSL 3.0 or newer (libssl.so.3), which this system lacks: {reason}; "
        "install it (Debian, Ubuntu: apt install libssl3), or leave tls_certificate out",
        {"setting": "tls_certificate"},
    )


cdef object refused(str setting, object path, str reason):
    return ConfigError(f"{setting} = {str(path)!r}: {reason}", {"setting": setting, "path": str(path)})


cdef str last_reason():
    cdef const char* reason = openssl.reason_of(openssl.last_error())
    return "OpenSSL gave no reason" if reason == NULL else (<bytes>reason).decode(errors="replace")


cdef bytes readable(str setting, object path):
    """Return the path as bytes. Raises: ConfigError if the file cannot be read, or is too large."""
    try:
        small_file.read(path, small_file.Kind("file in PEM", MAX_PEM_BYTES, is_private=False))
    except ConfigError as error:
        raise refused(setting, path, error.message) from None
    return str(path).encode()


cdef void* new_context() except NULL:
    """Create a context with the options common to servers and clients."""
    cdef void* context
    open_library()
    openssl.clear_errors()
    context = openssl.context_new(openssl.method())
    if context == NULL:
        raise MemoryError
    openssl.set_options(context, OP_NO_COMPRESSION | OP_NO_RENEGOTIATION | OP_IGNORE_UNEXPECTED_EOF)
    openssl.context_control(context, CONTROL_MIN_PROTOCOL, TLS_1_2, NULL)
    openssl.context_control(context, CONTROL_MODE, MODES, NULL)
    openssl.context_control(context, CONTROL_READ_AHEAD, 1, NULL)
    openssl.context_control(context, CONTROL_CACHE_MODE, CACHE_OFF, NULL)
    # These are the ciphers for TLS 1.2; all of 1.3 are as good.
    openssl.set_ciphers(context, b"ECDHE+AESGCM:ECDHE+CHACHA20")
    return context


cdef int use_pair(void* context, str certificate_setting, certificate, str key_setting, key) except -1:
    """Load the certificate chain and key that this side shows."""
    cdef bytes chain_path = readable(certificate_setting, certificate)
    cdef bytes key_path = readable(key_setting, key)
    cdef bint asked = False
    cdef int done
    openssl.set_passphrase_callback(context, ask_nobody)
    openssl.set_passphrase_data(context, &asked)
    done = openssl.use_key(context, key_path, FILE_PEM)
    openssl.set_passphrase_data(context, NULL)
    if asked:
        raise refused(
            key_setting, key, "the key is encrypted with a passphrase; write the key without a passphrase"
        )
    if done != 1:
        raise refused(key_setting, key, f"expected a private key in PEM: {last_reason()}")
    if openssl.use_chain(context, chain_path) != 1:
        raise refused(certificate_setting, certificate, f"expected certificates in PEM: {last_reason()}")
    if openssl.check_key(context) != 1:
        raise refused(key_setting, key, f"the key does not match the first certificate in {certificate}")
    return 0


@cython.final
cdef class Tls:
    """TLS at some listeners with one certificate; the constructor blocks while it reads the files.

    `listeners` has a bit for each listener as numbered in `transport/interface.pxd`. `clients` and `peers` are the
    authorities that sign certificates of clients and nodes. A client is asked for a certificate: without one it may
    connect, with a wrong one it may not. `uuid` (16 bytes, or None) and, without one, `names` are the node's own;
    `expires_s` is the end of its certificate's validity, in seconds since 1970.

    Raises:
        ConfigError: a file is invalid; the message names the file and the action.
        LocalError: the system has no OpenSSL 3.
    """

    def __cinit__(self, certificate, key, clients=None, peers=None, *, uint32_t listeners):
        self.listeners = listeners
        self.context = new_context()
        openssl.set_tickets(self.context, TICKETS)
        # Without an id context, OpenSSL accepts no ticket of a client with a certificate.
        openssl.set_id_context(self.context, b"gossipkv", 8)
        self.use(certificate, key)
        asked = {"tls_clients": clients, "tls_peers": peers}
        self.ask({setting: path for setting, path in asked.items() if path is not None})
        self.signers = <Signers*>calloc(1, sizeof(Signers))
        if self.signers == NULL or openssl.set_data(self.context, signers_index, self.signers) != 1:
            free(self.signers)
            raise MemoryError
        if peers is not None:
            self.signers.peers = store_of("tls_peers", peers)
        if clients is not None:
            self.signers.clients = store_of("tls_clients", clients)
        openssl.set_ticket_callbacks(self.context, note_verdict, judge_ticket, self.signers)

    def __dealloc__(self):
        if self.context != NULL:
            openssl.context_free(self.context)

    @property
    def knows_peers(self):
        """True if nodes prove their identity to each other."""
        return self.signers.peers != NULL

    cdef int use(self, certificate, key) except -1:
        cdef tm expires
        use_pair(self.context, "tls_certificate", certificate, "tls_key", key)
        openssl.context_control(self.context, CONTROL_BUILD_CHAIN, CHAIN_FLAGS, NULL)
        memset(&expires, 0, sizeof(expires))
        if openssl.to_tm(openssl.not_after(openssl.certificate(self.context)), &expires) != 1:
            raise refused("tls_certificate", certificate, "the certificate has no valid time of expiry")
        self.expires_s = timegm(&expires)
        node = node_of(openssl.certificate(self.context))
        self.uuid, self.names = (node, ()) if isinstance(node, bytes) else (None, node or ())
        return 0

    cdef int ask(self, dict authorities) except -1:
        """Ask clients for a certificate signed by one of these authorities (by setting); without any, do not ask."""
        cdef void* names = NULL
        cdef bytes path
        for setting, file in authorities.items():
            path = readable(setting, file)
            if names != NULL:
                openssl.add_names(names, path)
            else:
                names = openssl.read_names(path)
                openssl.tell_names(self.context, names)
                openssl.set_verify(self.context, VERIFY_PEER, NULL)
            if names == NULL or openssl.trust(self.context, path) != 1:
                raise refused(setting, file, f"expected certificates of authorities in PEM: {last_reason()}")
        return 0

    cdef void* begin(self, int fd) noexcept nogil:
        """Return the TLS state of an accepted connection, for `tls_free`; NULL if out of memory."""
        cdef void* tls = openssl.new(self.context)
        if tls != NULL and openssl.set_fd(tls, fd) != 1:
            openssl.free(tls)
            return NULL
        if tls != NULL:
            openssl.set_accepting(tls)
        return tls

    cdef object proven(self, const void* tls):
        """Return the uuid (16 bytes) or the names of the node at the other end; None if its certificate proves none."""
        return node_of(openssl.shown(tls)) if who_signed(tls, self.signers) & SIGNED_BY_PEERS else None

    cdef object named(self, const void* tls):
        """Return the name in the other end's client certificate; None without one, or if it is a node's."""
        cdef const void* certificate = openssl.shown(tls)
        if certificate == NULL or uuid_of(certificate) is not None:
            return None
        if not who_signed(tls, self.signers) & SIGNED_BY_CLIENTS:
            return None
        return name_of(certificate)


@cython.final
cdef class TlsClient:
    """TLS with a server, as clients use it: the server must prove that it is `host`.

    `authorities` may sign its certificate; None means the system's trusted authorities. The client shows `certificate`
    with `key`.

    Raises:
        ConfigError, LocalError: as `Tls`.
    """

    def __cinit__(self, str host not None, authorities=None, certificate=None, key=None):
        self.host = host.partition("%")[0].encode("idna" if not host.isascii() else "ascii")
        self.host_text = self.host
        self.is_name = not self.host.replace(b".", b"").isdigit() and b":" not in self.host
        self.context = new_context()
        openssl.set_verify(self.context, VERIFY_PEER, NULL)
        if authorities is None:
            openssl.trust_usual(self.context)
        elif openssl.trust(self.context, readable("--ca", authorities)) != 1:
            raise refused("--ca", authorities, f"expected certificates of authorities in PEM: {last_reason()}")
        if certificate is not None:
            use_pair(self.context, "--cert", certificate, "--key", certificate if key is None else key)

    def __dealloc__(self):
        if self.context != NULL:
            openssl.context_free(self.context)

    cdef void* dial(self, int fd) noexcept nogil:
        """Return the TLS state of an outgoing connection, for `tls_free`; NULL if out of memory."""
        cdef void* tls = openssl.new(self.context)
        if tls == NULL:
            return NULL
        if openssl.set_fd(tls, fd) != 1 or openssl.set_host(tls, self.host_text) != 1:
            openssl.free(tls)
            return NULL
        if self.is_name:
            openssl.control(tls, CONTROL_NAME, 0, self.host_text)
        openssl.set_dialling(tls)
        return tls


@cython.final
cdef class TlsEnd:
    """Our end of a TLS connection to another node, without a socket, until a transport takes it over.

    `feed` takes received bytes. Send the bytes from `take_output` after every other call.
    """

    def __cinit__(self, Tls tls not None):
        self.context = tls
        self.fd = -1
        self.tls = openssl.new(tls.context)
        self.came = openssl.bio_new(openssl.memory())
        self.goes = openssl.bio_new(openssl.memory())
        if self.tls == NULL or self.came == NULL or self.goes == NULL:
            raise MemoryError
        openssl.set_bio(self.tls, self.came, self.goes)
        openssl.set_dialling(self.tls)

    def __dealloc__(self):
        if self.tls != NULL:
            openssl.free(self.tls)

    @property
    def proven(self):
        """The uuid (16 bytes) or the names that the other end's certificate proves, or None. Requires: a handshake."""
        return self.context.proven(self.tls)

    def feed(self, bytes data not None):
        """Take received bytes."""
        openssl.bio_write(self.came, <const char*>data, <int>len(data))

    def take_output(self):
        """Return the bytes to send now."""
        cdef uint8_t chunk[OUTPUT_BYTES]
        cdef list output = []
        cdef int size = OUTPUT_BYTES
        while size == OUTPUT_BYTES:
            size = openssl.bio_read(self.goes, chunk, OUTPUT_BYTES)
            output.append((<const char*>chunk)[:max(size, 0)])
        return b"".join(output)

    def shake(self):
        """Continue the handshake. Return True if it is done, False if more input is needed.

        Raises:
            Unauthorized, ProtocolError: the handshake fails; the message says why.
        """
        cdef int waits = tls_shake(self.tls)
        if waits == BROKEN:
            self.fail()
        return waits == 0

    def read(self, int most):
        """Return some decrypted bytes; b"" at the end; None if more input is needed. Raises: as `shake`."""
        cdef bytearray data = bytearray(most)
        cdef bint holds
        cdef ssize_t size = tls_receive(self.tls, data, most, &holds)
        if size == BROKEN:
            self.fail()
        return None if size == NOT_YET else bytes(data[:size])

    def write(self, bytes data not None):
        """Encrypt bytes for `take_output`. Requires: the handshake is done."""
        if tls_send(self.tls, data, len(data)) != len(data):
            self.fail()

    def at(self, int fd):
        """Prepare this end for a transport that continues at `fd`, and return it. Requires: all input was read."""
        openssl.set_fd(self.tls, fd)
        self.fd = fd
        return self

    cdef void* take(self) noexcept nogil:
        """Return the TLS state, which the caller now owns."""
        cdef void* tls = self.tls
        self.tls = NULL
        return tls

    cdef int fail(self) except -1:
        """Raise the reason for which this connection has failed."""
        cdef long verdict = openssl.verdict(self.tls)
        cdef int reason = openssl.last_error() & REASON_BITS
        if verdict != 0:
            why = (<bytes>openssl.verdict_reason(verdict)).decode()
            raise Unauthorized(f"its certificate was refused: {why}", {"reason": why})
        why = last_reason()
        if BAD_CERTIFICATE_ALERT <= reason <= UNKNOWN_AUTHORITY_ALERT or reason == NO_CERTIFICATE_ALERT:
            raise Unauthorized(f"it refused this node's certificate: {why}", {"reason": why})
        if reason == PROTOCOL_VERSION_ALERT or reason == NOT_TLS:
            raise ProtocolError("it does not speak TLS, which tls_peers of this node requires", {"reason": why})
        raise ProtocolError(f"TLS failed: {why}", {"reason": why})


cdef inline void forget_errors() noexcept nogil:
    """Clear left-over errors; the check first takes a quarter of the time of clearing."""
    if openssl.last_error() != 0:
        openssl.clear_errors()


cdef inline ssize_t tls_failed(void* tls, int result) noexcept nogil:
    """Translate a failed call into a value for its connection; 0 for its end."""
    cdef int why = openssl.why(tls, result)
    if why == WHY_WANTS_READ or why == WHY_WANTS_WRITE:
        return NOT_YET
    return 0 if why == WHY_ENDED else BROKEN


cdef int tls_shake(void* tls) noexcept nogil:
    """Take a handshake step. Return the event it waits for (`READABLE`, `WRITABLE`), 0 when done, or `BROKEN`."""
    cdef int result
    cdef int why
    openssl.clear_errors()
    result = openssl.shake(tls)
    if result == 1:
        return 0
    why = openssl.why(tls, result)
    if why == WHY_WANTS_READ:
        return READABLE
    return WRITABLE if why == WHY_WANTS_WRITE else BROKEN


cdef ssize_t tls_receive(void* tls, uint8_t* data, Py_ssize_t size, bint* holds) noexcept nogil:
    """Implement `Transport.receive`; `holds` is set if more bytes or an end are here that epoll does not report."""
    cdef Py_ssize_t came = 0
    cdef ssize_t result
    holds[0] = False
    forget_errors()
    while True:
        result = openssl.read(tls, data + came, <int>min(size - came, <Py_ssize_t>MAX_AT_ONCE))
        if result <= 0:
            break
        came += result
        if came == size or not openssl.holds(tls):  # Stop here rather than make a call that finds no bytes.
            holds[0] = came == size and openssl.holds(tls)
            return came
    result = tls_failed(tls, <int>result)
    if came > 0:
        holds[0] = result != NOT_YET
        return came
    return result


cdef ssize_t tls_peek(void* tls, uint8_t* data, Py_ssize_t size) noexcept nogil:
    """Peek at one record at most; results as of `tls_receive`."""
    cdef int result
    forget_errors()
    result = openssl.peek(tls, data, <int>min(size, <Py_ssize_t>MAX_AT_ONCE))
    return result if result > 0 else tls_failed(tls, result)


cdef ssize_t tls_send(void* tls, const uint8_t* data, Py_ssize_t size) noexcept nogil:
    """Implement `Transport.send`. Requires: bytes that were not taken come first again, with at least that length."""
    cdef Py_ssize_t taken = 0
    cdef int result = 0
    forget_errors()
    while taken < size:
        result = openssl.write(tls, data + taken, <int>min(size - taken, <Py_ssize_t>MAX_AT_ONCE))
        if result <= 0:
            break
        taken += result
    if taken > 0 or size == 0:
        return taken
    return NOT_YET if openssl.why(tls, result) == WHY_WANTS_WRITE else BROKEN


cdef bint tls_holds(void* tls) noexcept nogil:
    """True if it has bytes that epoll does not report; they may not be a whole record."""
    return openssl.holds(tls)


cdef bint tls_resumed(void* tls) noexcept nogil:
    """True if the handshake used a ticket."""
    return openssl.resumed(tls)


cdef bint tls_certified(void* tls) noexcept nogil:
    """True if the other end has shown a certificate."""
    return openssl.shown(tls) != NULL


cdef void tls_end(void* tls) noexcept nogil:
    """Send the end of our output."""
    openssl.clear_errors()
    openssl.shut(tls)
    openssl.clear_errors()


cdef void tls_free(void* tls) noexcept nogil:
    openssl.free(tls)
