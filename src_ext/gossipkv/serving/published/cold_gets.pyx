"""Gets that wait for the disk: the record is local, but not in memory.

Another thread reads the page at which a lookup stopped (`cold_pages.pyx`), and then the lookup runs again. If pages
cannot be read, or are evicted repeatedly before use, the lookup finally waits in place, which also shows damage.
"""

from cpython.object cimport PyObject


cdef enum:
    # After so many failed page reads or lookups, a read waits in place. Damage shows then, and a page that is evicted
    # repeatedly before use holds up one read, but not forever.
    PATIENCE = 2
    MAX_LOOKUPS = 16


cdef void wait_for_page(RelayDriver driver, Get* get, PyObject* file) noexcept nogil:
    """Continue the get when the page at which that file's last lookup stopped has been read."""
    cdef Relay* relay = &get.head
    if relay.kind != WAITING_READ:
        relay.kind = WAITING_READ
        set_due(driver.relays, relay, min(relay.limit_ns, driver.connections.now_ns + DISK_NS))
    get.wait.whose = relay
    if driver.cold.ask(&get.wait, file, <PyObject*>driver.published, 0) < 0:
        get.wait.failures = PATIENCE
        relay_stir(driver.relays, relay)


cdef bint is_patient(const Get* get) noexcept nogil:
    """True if the lookup should now wait for the disk in place."""
    return get.wait.failures >= PATIENCE or get.head.rounds >= MAX_LOOKUPS


cdef void release_get(Relays* relays, Relay* relay) noexcept nogil:
    forget_wait(&(<Get*>relay).wait)


cdef void refuse_slow(RelayDriver driver, Relay* relay) noexcept nogil:
    """Answer that the disk is too slow. Requires: `out` is empty."""
    cdef Connection* connection = claim_client(driver, relay)
    driver.counts[COLD_REFUSED] += 1
    if refuse_disk(&driver.connections.out, relay.msgid) < 0:
        driver.connections.doom(connection, CLOSED_MEMORY)
    relay_end(driver.relays, relay)
    driver.connections.hold_output(connection, 0)
    driver.connections.flush_later(connection)
    driver.connections.sent(connection, 0)
