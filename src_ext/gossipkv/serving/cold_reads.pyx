"""Gets that wait for the disk: what they ask for is here, but not in memory.

The page at which a lookup has stopped is read by another thread (`cold_pages.pyx`); then the get is looked up anew,
from its beginning, by what is served by then: it may stop again, be here, or be elsewhere.  One whose pages cannot be
read, or are thrown out again and again before they are used, waits where it stands in the end: what is damaged shows
then.
"""

from cpython.object cimport PyObject


cdef enum:
    # Failures to read pages, and lookups, after which a read waits where it stands: what is damaged shows then, and a
    # page that is thrown out again and again before it is used holds up one read and not all for ever.
    PATIENCE = 2
    MAX_LOOKUPS = 16


cdef void wait_for_page(Asking asking, Get* get, PyObject* file) noexcept nogil:
    """Have it go on when the page is there at which that file's last lookup stopped."""
    cdef Relay* relay = &get.head
    if relay.kind != WAITING_READ:
        relay.kind = WAITING_READ
        set_due(asking.relays, relay, min(relay.limit_ns, asking.connections.now_ns + DISK_NS))
    get.wait.whose = relay
    if asking.cold.ask(&get.wait, file, <PyObject*>asking.published, 0) < 0:
        get.wait.failures = PATIENCE
        relay_stir(asking.relays, relay)


cdef bint is_patient(const Get* get) noexcept nogil:
    """Whether it waits for the disk where it stands by now."""
    return get.wait.failures >= PATIENCE or get.head.rounds >= MAX_LOOKUPS


cdef void release_get(Relays* relays, Relay* relay) noexcept nogil:
    forget_wait(&(<Get*>relay).wait)


cdef void refuse_slow(Asking asking, Relay* relay) noexcept nogil:
    """Say that the disk does not answer.  Requires: `out` is empty."""
    cdef Connection* connection = claim_client(asking, relay)
    asking.counts[COLD_REFUSED] += 1
    if refuse_disk(&asking.connections.out, relay.msgid) < 0:
        asking.connections.doom(connection, CLOSED_MEMORY)
    relay_end(asking.relays, relay)
    asking.connections.hold_output(connection, 0)
    asking.connections.flush_later(connection)
    asking.connections.sent(connection, 0)
