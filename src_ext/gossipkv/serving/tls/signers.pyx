"""Certificates of the other end: the authority that signed them, and the names in them.

A resumed session is judged by its certificate and the note in its ticket: a ticket has no chain, so a certificate under
an intermediate authority cannot be checked anew.
"""

from uuid import UUID

from libc.stdint cimport uint8_t
from libc.stdlib cimport free


cdef void free_signers(void* context, void* given, void* data, int index, long argl, void* argp) noexcept nogil:
    cdef Signers* signers = <Signers*>given
    if signers != NULL:
        openssl.store_free(signers.peers)
        openssl.store_free(signers.clients)
        free(signers)


cdef void* store_of(str setting, path) except NULL:
    """Load a store of signing authorities from a file."""
    cdef void* store = openssl.store_new()
    if store == NULL or openssl.store_load(store, readable(setting, path)) != 1:
        openssl.store_free(store)
        raise refused(setting, path, f"expected certificates of authorities in PEM: {last_reason()}")
    return store


cdef int note_verdict(void* tls, void* signers) noexcept nogil:
    """Write into a new ticket which authorities signed the other end's certificate."""
    cdef uint8_t signed = <uint8_t>who_signed(tls, <const Signers*>signers)
    return openssl.set_note(openssl.session(tls), &signed, 1)


cdef int judge_ticket(
    void* tls, void* session, const uint8_t* name, size_t size, int status, void* signers
) noexcept nogil:
    """Treat a ticket as OpenSSL does by default; OpenSSL requires this callback beside `note_verdict`."""
    if status == TICKET_READ or status == TICKET_READ_AND_OLD:
        return USE_TICKET if status == TICKET_READ else USE_AND_RENEW_TICKET
    return RENEW_TICKET


cdef int who_signed(const void* tls, const Signers* signers) noexcept nogil:
    """Return a bit for each kind of authority that signed the other end's certificate; 0 if none or expired."""
    cdef uint8_t* note
    cdef size_t size
    if openssl.shown(tls) == NULL:
        return 0
    if openssl.resumed(tls) != 1:
        return is_signed(tls, signers.peers) * SIGNED_BY_PEERS | is_signed(tls, signers.clients) * SIGNED_BY_CLIENTS
    if openssl.compare_to_now(openssl.not_after(openssl.shown(tls))) <= 0:
        return 0
    return note[0] if openssl.note(openssl.session(tls), <void**>&note, &size) == 1 and size == 1 else 0


cdef bint is_signed(const void* tls, void* store) noexcept nogil:
    """True if the other end has shown a certificate that an authority in `store` signed; NULL for no authorities."""
    cdef const void* certificate = openssl.shown(tls)
    cdef void* verdict
    cdef bint result
    if store == NULL or certificate == NULL:
        return False
    openssl.clear_errors()
    verdict = openssl.verdict_new()
    result = (
        verdict != NULL
        and openssl.verdict_begin(verdict, store, certificate, openssl.shown_chain(tls)) == 1
        and openssl.is_signed(verdict) == 1
    )
    openssl.verdict_free(verdict)
    return result


cdef object uuid_of(const void* certificate):
    """Return the uuid (16 bytes) of the node that a certificate names; None if it names none or several."""
    node = node_of(certificate)
    return node if isinstance(node, bytes) else None


cdef object node_of(const void* certificate):
    """Return what a certificate says of its node: the uuid (16 bytes), else the tuple of its DNS names; None: nothing.

    A certificate with several uuids, or a malformed one, says nothing.
    """
    cdef void* names = openssl.extension(certificate, NAMES_EXTENSION, NULL, NULL)
    cdef const void* value
    cdef int kind
    cdef int at
    cdef list found = []
    for at in range(openssl.name_count(names)):  # OpenSSL counts -1 names for NULL.
        value = openssl.name_value(openssl.name_at(names, at), &kind)
        if kind == NAME_URI or kind == NAME_DNS:
            found.append((kind, (<const char*>openssl.text_data(value))[:openssl.text_size(value)]))
    openssl.names_free(names)
    named = [name for kind, name in found if kind == NAME_URI and name.startswith(b"urn:uuid:")]
    if not named:
        return tuple(name.decode() for kind, name in found if kind == NAME_DNS and name.isascii()) or None
    try:
        return UUID(named[0].decode()).bytes if len(named) == 1 else None
    except ValueError:
        return None


cdef object name_of(const void* certificate):
    """Return the common name; None if it is missing, repeated, or not ASCII as users' names are."""
    cdef const void* subject = openssl.subject(certificate)
    cdef int at = openssl.find_entry(subject, COMMON_NAME, -1)
    cdef const void* value
    if at < 0 or openssl.find_entry(subject, COMMON_NAME, at) >= 0:
        return None
    value = openssl.entry_value(openssl.entry_at(subject, at))
    name = (<const char*>openssl.text_data(value))[:openssl.text_size(value)]
    return name.decode() if name.isascii() else None
